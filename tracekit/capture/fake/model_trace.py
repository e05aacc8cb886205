"""Writes the trace of a modelled run: records it on fake tensors, and times it with models of the kernels and the host.

The low and high ends of the latency are those of a fast and of a slow host for such a GPU. Nothing is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.core import Link, counted
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import KERNEL_ERROR, HostCosts, assumed, workspace_bytes
from tracekit.analyzers.trace import CaptureInfo, Latency, RecordedOn, ranges
from tracekit.capture import stamp
from tracekit.capture.fake import events
from tracekit.capture.fake import steps as fake_run
from tracekit.capture.fake.recording import Recording
from tracekit.capture.fake.steps import FakeRun
from tracekit.capture.fake.timeline import ModelledKernel, Timeline, kernel_of, lay_out
from tracekit.capture.latency import PHASE_NAMES
from tracekit.reports.words import with_article
from tracekit.run import Say, Settings, environment, silent

_LONG_STEP = 20_000
"""Number of slots from which a step is recorded only once: all steps are identical."""


def write_trace(
    settings: Settings,
    gpu: GPU,
    path: Path,
    say: Say = silent,
    *,
    host: HostCosts | None = None,
    keep: Callable[[Recording], None] | None = None,
) -> CaptureInfo:
    """Model the run on `gpu` and write the trace. Raises TracekitError if the GPU cannot run it.

    `host` gives the host time of ops; None: a typical machine with such a GPU.
    `keep` is called with the recorded step.
    """
    run = fake_run.run(settings, gpu)
    if keep:
        keep(run.recording)
    steps = settings.steps if len(run.recording.call) < _LONG_STEP else 1
    about = settings.described() | {"steps": steps}
    return write_run(Modelled(run, about, gpu, host or assumed(gpu), steps), path, say)


@dataclass(frozen=True)
class Modelled:
    """A recorded run, and the GPU and host that it is modelled for."""

    run: FakeRun
    about: dict[str, Any]
    """The fields of CaptureInfo that describe the run."""
    gpu: GPU
    host: HostCosts
    steps: int
    """Number of repetitions of the recorded step; 0 if the recording is a whole session with its own steps."""
    recorded: RecordedOn = "fake tensors"


def write_run(modelled: Modelled, path: Path, say: Say = silent) -> CaptureInfo:
    """Time a recorded run on its GPU, and write the trace."""
    recording, gpu, host = modelled.run.recording, modelled.gpu, modelled.host
    needed = recording.peak_bytes + workspace_bytes(gpu, training=bool(recording.nodes))
    if needed > gpu.memory_bytes:
        say(f"it needs {needed / 1e9:.1f} GB: more than the {gpu.memory_gb:g} GB of {with_article(gpu.name)}")
    tf32, link = modelled.about.get("dtype") == "tf32", cast(Link, modelled.about.get("link", "nvlink"))
    kernels = [kernel_of(call, gpu, tf32=tf32, link=link) for call in counted(recording.calls, "modelling ops")]
    ends = ((host.span.expected, 1.0), (host.span.low, KERNEL_ERROR.low), (host.span.high, KERNEL_ERROR.high))
    timelines = [
        lay_out(recording, [_scaled(each, error) for each in kernels], gpu, host.scaled(factor), max(modelled.steps, 1))
        for factor, error in ends
    ]
    info = _info(modelled, needed, (timelines[0], timelines[1], timelines[2]))
    marked = modelled.steps > 0
    stamp.write(path, info, gpu, events.events(recording, kernels, timelines[0], gpu, marked=marked))
    return info


def _scaled(kernel: ModelledKernel | None, error: float) -> ModelledKernel | None:
    return replace(kernel, duration_ns=round(kernel.duration_ns * error)) if kernel else None


def _info(modelled: Modelled, peak_memory_bytes: int, timelines: tuple[Timeline, Timeline, Timeline]) -> CaptureInfo:
    gpu, host, run = modelled.gpu, modelled.host, modelled.run
    return CaptureInfo(
        source="modelled",
        device="model",
        recorded_on=modelled.recorded,
        gpu=gpu.id,
        gpu_row=hardware.row_for_capture(gpu),
        **environment.recorded(environment.DeviceState(gpu.name)),
        **modelled.about,
        parameters=run.parameters,
        weight_bytes=run.weight_bytes,
        buffer_bytes=run.buffer_bytes,
        without_compile=run.compiled > 0,
        latency=_latency([timeline.step_ns for timeline in timelines]) if modelled.steps else None,
        phases=_phases(run.recording, timelines) if modelled.steps else {},
        peak_memory_bytes=peak_memory_bytes,
        host_op_us=host.base_us,
        host_op_low_us=host.base_us * host.span.low,
        host_op_high_us=host.base_us * host.span.high,
        host_source=host.source,
    )


def _latency(expected_fast_slow_ns: list[float]) -> Latency:
    expected, fast, slow = (nanoseconds / 1e3 for nanoseconds in expected_fast_slow_ns)
    return Latency(median_us=expected, p10_us=fast, p90_us=slow, samples=0)


def _phases(recording: Recording, timelines: tuple[Timeline, Timeline, Timeline]) -> dict[str, Latency]:
    """Return the median time of each phase of a step with several.

    A phase begins when the device has finished the one before it.
    """
    phases = [each for each in recording.ranges if (ranges.parse(each.name) or ("",))[0] == "phase"]
    names = [each.name for each in phases]
    if len(set(names)) < 2:
        return {}
    closes = [each.closes for each in phases]
    times = [np.diff(_done(timeline)[closes], prepend=timeline.host_start[-1, 0]) for timeline in timelines]
    return {
        PHASE_NAMES[name]: _latency([float(np.median(each[np.array(names) == name])) for each in times])
        for name in dict.fromkeys(names)
    }


def _done(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return, for each slot of the last step, the time at which the device has finished all work launched before."""
    return np.maximum.accumulate(np.maximum(timeline.kernel_end[-1], timeline.host_start[-1, 0]))
