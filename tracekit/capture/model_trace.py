"""Write the trace of a modelled run: record it on fake tensors, and time it with models of the kernels and the host.

The latency's low and high ends are those of the host's range, from a fast host for such a GPU to a slow one; nothing
was measured.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tracekit import __version__
from tracekit.analyzers import hardware, ranges
from tracekit.analyzers.capture_info import CaptureInfo, Latency
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.host_costs import HostCosts, assumed
from tracekit.analyzers.prediction.workspaces import workspace_bytes
from tracekit.capture import environment, fake_run, modelled_events, trace_file
from tracekit.capture.fake_run import FakeRun
from tracekit.capture.latency import PHASE_NAMES
from tracekit.capture.modelled_kernels import kernel_of
from tracekit.capture.modelled_timeline import Timeline, lay_out
from tracekit.capture.progress import Say, silent
from tracekit.capture.recording import Recording
from tracekit.capture.settings import Settings
from tracekit.reports.names import with_article

_LONG_STEP = 20_000
"""Slots from which on a step is recorded once: each step is like the others, and the file would only grow."""


def write(settings: Settings, gpu: GPU, path: Path, say: Say = silent, *, host: HostCosts | None = None) -> CaptureInfo:
    """Model the settings' run on `gpu` and write the trace. Raises TracekitError when the GPU cannot run them.

    `host` gives the host time of ops; None: that of machines that usually hold such a GPU.
    """
    host = host or assumed(gpu)
    run = fake_run.run(settings, gpu)
    needed = run.recording.peak_bytes + workspace_bytes(gpu, training=settings.workload == "train")
    if needed > gpu.memory_bytes:
        say(f"it needs {needed / 1e9:.1f} GB: more than the {gpu.memory_gb:g} GB of {with_article(gpu.name)}")
    kernels = [kernel_of(call, gpu, tf32=settings.dtype == "tf32") for call in run.recording.calls]
    steps = settings.steps if len(run.recording.call) < _LONG_STEP else 1
    factors = (host.span.expected, host.span.low, host.span.high)
    expected, fast, slow = (lay_out(run.recording, kernels, gpu, host.scaled(factor), steps) for factor in factors)
    info = _info(settings, gpu, run, needed, host, (expected, fast, slow))
    trace_file.write(path, info, gpu, modelled_events.events(run.recording, kernels, expected, gpu))
    return info


def _info(
    settings: Settings,
    gpu: GPU,
    run: FakeRun,
    peak_memory_bytes: int,
    host: HostCosts,
    timelines: tuple[Timeline, Timeline, Timeline],
) -> CaptureInfo:
    described = settings.described() | {"steps": len(timelines[0].host_start)}
    return CaptureInfo(
        version=__version__,
        source="modelled",
        device="model",
        gpu=gpu.id,
        gpu_row=hardware.row_for_capture(gpu),
        device_name=gpu.name,
        versions=environment.versions(),
        **described,
        parameters=run.parameters,
        weight_bytes=run.weight_bytes,
        buffer_bytes=run.buffer_bytes,
        latency=_latency([timeline.step_ns for timeline in timelines]),
        phases=_phases(run.recording, timelines),
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
    """Median time of each phase of a step with several, from when the device is done with the phase before it."""
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
    """Per slot of the last step, when the device is done with all work that was launched by then."""
    return np.maximum.accumulate(np.maximum(timeline.kernel_end[-1], timeline.host_start[-1, 0]))
