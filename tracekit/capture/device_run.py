"""Runs on a real device: warm-up, timing without the profiler, then recording with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError, counted
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.trace import CaptureInfo
from tracekit.capture import emitted_ranges, models
from tracekit.capture.backward_ranges import is_recorded_by_nsys
from tracekit.capture.emitted_ranges import NoRanges, ProfilerRanges
from tracekit.capture.latency import (
    WARM_UP_STEPS,
    ModuleTimes,
    StepTimes,
    clock_of,
    export,
    new_profiler,
    synchronize,
    time_step,
)
from tracekit.capture.own_model import weights_of
from tracekit.capture.precision import Backend, backend_of, numerics, refusal_told
from tracekit.capture.workloads import Step, prepare
from tracekit.capture.wrapped_calls import named_waits
from tracekit.run import Say, Settings, environment, model_errors, require

if TYPE_CHECKING:
    from torch import nn


_NO_MEMORY = "can't allocate memory"
"""The message of torch's RuntimeError when the host's memory is too small."""


@dataclass(frozen=True)
class Measurement:
    """Measurements of a run other than its trace."""

    times: StepTimes
    peak_memory_bytes: int
    device: environment.DeviceState
    synchronized: dict[str, float] = field(default_factory=dict)
    """Shares of classes of modules between synchronizations; {} unless the settings ask for them."""


def write(settings: Settings, path: Path, say: Say) -> None:
    """Run the settings on their device and write the trace. Raises TracekitError if the device cannot run them."""
    say(f"building {settings.shown_name} ({settings.weights} weights, {settings.dtype}) on {settings.device}")
    backend = backend_of(settings.attention)
    bundled = models.find(settings.model).origin == "bundled"
    with (
        model_errors(settings.shown_name, settings.workload, bundled=bundled),
        explained(settings, backend),
        numerics(settings.dtype, backend),
    ):
        model = models.build_for(settings)
        write_run(model, prepare(model, settings), settings, path, say)


def write_run(model: "nn.Module", step: Step, settings: Settings, path: Path, say: Say) -> None:
    """Time and profile a step of an existing model, and write the trace. The caller's numerics apply."""
    with explained(settings, backend_of(settings.attention)):
        say("warming up and timing without the profiler")
        measured = _measure(model, step, settings)
        say(f"profiling {settings.steps} steps")
        if is_recorded_by_nsys():
            say("Nsight Systems receives the GPU's records: analyze its report, not this trace")
        profiler = profiled(model, step, settings)
    say(f"writing {path}")
    export(profiler, path, capture_info(settings, model, measured))


def _measure(model: "nn.Module", step: Step, settings: Settings) -> Measurement:
    for _ in counted(range(WARM_UP_STEPS), "warming up, steps"):
        step(NoRanges())
    synchronize()
    if settings.device == "cpu":
        times = time_step(step, clock_of("cpu"))
        return Measurement(times, 0, environment.cpu_state(), _synchronized(model, step, settings))
    cuda = require("torch.cuda")
    cuda.reset_peak_memory_stats()
    times = time_step(step, clock_of("cuda"))
    peak, state = cuda.max_memory_allocated(), environment.cuda_state()
    return Measurement(times, peak, state, _synchronized(model, step, settings))


def _synchronized(model: "nn.Module", step: Step, settings: Settings) -> dict[str, float]:
    """Time each module between synchronizations, before the profiler has slowed the launches of this process."""
    if not settings.synchronize:
        return {}
    times = ModuleTimes()
    with emitted_ranges.annotate(model, times):
        for _ in range(1 + settings.steps):
            step(NoRanges())
    return times.shares()


def profiled(model: "nn.Module", step: Step, settings: Settings) -> Any:
    """Profile the steps and return the stopped profiler. One step before them absorbs the profiler's start-up."""
    profiler, emitter = new_profiler(), ProfilerRanges()
    with emitted_ranges.annotate(model, emitter), named_waits():
        profiler.prepare_trace()
        step(emitter)
        synchronize()
        profiler.start_trace()
        _mark_for_nsys("start")
        for index in counted(range(settings.steps), "profiling steps"):
            with emitted_ranges.step(index, emitter):
                step(emitter)
                synchronize()
        _mark_for_nsys("stop")
        profiler.stop_trace()
    return profiler


def _mark_for_nsys(what: str) -> None:
    """Begin or end what `nsys profile -c cudaProfilerApi` records, so that its report holds these steps alone."""
    if is_recorded_by_nsys() and require("torch.cuda").is_initialized():
        getattr(require("torch.cuda.profiler"), what)()


def capture_info(settings: Settings, model: "nn.Module", measured: Measurement) -> CaptureInfo:
    """Return the CaptureInfo of a measured run."""
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    return CaptureInfo(
        source="measured",
        device="cuda" if settings.device == "cuda" else "cpu",
        gpu=settings.gpu,
        gpu_row=hardware.row_for_capture(gpu) if gpu else {},
        **environment.recorded(measured.device),
        **settings.described(),
        **weights_of(model),
        latency=measured.times.step,
        phases=measured.times.phases,
        peak_memory_bytes=measured.peak_memory_bytes,
        synchronized=measured.synchronized,
    )


@contextmanager
def explained(settings: Settings, backend: Backend) -> Iterator[None]:
    """Raise InputError if memory is too small, or if `backend`, the only one that attention may use, cannot run."""
    torch = require("torch")
    run = f"{settings.shown_name} in {settings.dtype}"
    try:
        with refusal_told(backend, run):
            yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and _NO_MEMORY not in str(error):
            raise
        raise InputError(
            f"{settings.shown_name} does not fit in the device's memory.",
            f"It ran out at batch size {settings.batch_size}, {settings.seq_len} tokens, {settings.dtype}.",
            "Try fp16 or bf16, a smaller --batch-size or --seq-len, or --device model.",
        ) from error
