"""Measures a row of a bench beside the first configuration of its run, or its peak memory at each batch size alone."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import DeviceReading, Quality
from tracekit.analyzers.trace import Latency
from tracekit.apply import SEED, Subject, optimizer_of
from tracekit.capture import NoRanges, clock_of, models, time_step
from tracekit.measure import device_state, trial
from tracekit.measure.bench_rows import Row
from tracekit.measure.configurations import Configuration
from tracekit.measure.interleaved import WALL_S, CpuShare, noise
from tracekit.measure.quality import Evaluation, judged, whole_windows
from tracekit.measure.side_by_side import Measured, Ready, beside, ready, warm
from tracekit.run import Settings, require


@dataclass(frozen=True)
class Request:
    """A row that is to be measured."""

    row: Row
    settings: Settings
    """Settings of the run, with the dtype and the attention of the first configuration."""
    first: Configuration
    configuration: Configuration
    evaluation: Evaluation
    calibration: str = ""
    """Text that `awq` and `smoothquant` are calibrated with, and what is trained is trained with."""
    train_steps: int = 0
    wall_s: float = WALL_S
    """Seconds of wall time that the comparison with the first configuration may take."""


@dataclass
class _Cache:
    """The prepared first configuration of a run, which is kept between rows."""

    first: dict[tuple[Settings, Configuration], Ready] = field(default_factory=dict)

    def prepare(self, request: Request) -> Ready:
        key = (request.settings, request.first)
        if key not in self.first:
            self.release()
            self.first[key] = warm(_applied(request.first, built(request.settings), request))
        return self.first[key]

    def release(self) -> None:
        self.first.clear()
        device_state.release()


_CACHE = _Cache()


def built(settings: Settings) -> Subject:
    return Subject(model=models.build_for(settings), settings=settings)


def measured(request: Request) -> Row:
    """Return the row with its measurements. Exceptions of the model, a package or the device pass through."""
    before, resident = _CACHE.prepare(request), device_state.allocated_bytes()
    if request.configuration == request.first:
        return _filled(request, before, None)
    try:
        after = ready(optimized(before.subject, request))
        comparison = beside(before, after, resident_bytes=resident, wall_s=request.wall_s)
        return _filled(request, after, comparison)
    finally:
        require("torch.compiler").reset()


def release() -> None:
    """Free the models that are kept between rows. They are built again when they are needed."""
    _CACHE.release()


def optimized(subject: Subject, request: Request) -> Subject:
    """Apply the request's configuration to the run as it was built, without the changes of the first configuration."""
    plain = structs.replace(subject, compile_mode="", graphs=False, static_cache=False, fused_optimizer=False)
    return _applied(request.configuration, plain, request)


def _applied(configuration: Configuration, subject: Subject, request: Request) -> Subject:
    def windows(given: Subject) -> list[Any]:
        return whole_windows(given, request.calibration)

    return configuration.apply(subject, windows, request.train_steps)


def _filled(request: Request, run: Ready, comparison: Measured | None) -> Row:
    """Return the row with its measurements: first only the latency, then the state under load, then the others."""
    settings = run.subject.settings
    with run.subject.numerics():
        cpu = CpuShare()
        times = time_step(run.step, clock_of(settings.device))
        warnings = comparison.warnings if comparison else (cpu.warning(),) if settings.device == "cpu" else ()
        state, busy = device_state.read_under_load(lambda: run.step(NoRanges()))
    latency = comparison.after if comparison else times.step
    phases = times.phases
    items, unit = trial.items_of(settings)
    quality, unjudged = judged(_CACHE.prepare(request).subject, run.subject, request.evaluation)
    return replace(
        request.row,
        **_timed(latency, items),
        **(_compared(comparison) if comparison else {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}),
        **_read(state),
        unit=unit,
        time_to_first_token_us=_median(phases.get("time_to_first_token")),
        time_between_tokens_us=_median(phases.get("time_between_tokens")),
        peak_memory_bytes=(comparison.peak_memory_bytes if comparison else run.peak_memory_bytes()) or None,
        gpu_utilization=busy,
        **_judged(quality),
        device=trial.device_name(settings),
        versions=" ".join(f"{name}={number}" for name, number in trial.versions().items()),
        seed=SEED,
        caveats=" ".join(filter(None, (*warnings, *_caveats(latency, state), unjudged))),
    )


def _timed(latency: Latency, items: int) -> dict[str, Any]:
    return {
        "latency_us": latency.median_us,
        "latency_p10_us": latency.p10_us,
        "latency_p90_us": latency.p90_us,
        "items_per_s": items / latency.median_us * 1e6,
    }


def _compared(comparison: Measured) -> dict[str, Any]:
    gain = comparison.speedup
    cells: dict[str, Any] = {"speedup": gain.expected, "speedup_low": gain.low, "speedup_high": gain.high}
    difference = comparison.difference
    if difference:
        cells |= {"max_logit_difference": difference.max_abs, "relative_difference": difference.relative}
        cells |= {"kl": difference.kl, "agreement": difference.agreement}
    return cells


def _judged(quality: Quality | None) -> dict[str, Any]:
    if quality is None:
        return {}
    change = quality.change
    ends = {"change": change.expected, "change_low": change.low, "change_high": change.high} if change else {}
    return {quality.measure: quality.after, **ends, "text_agreement": quality.agreement, "text_kl": quality.kl}


def _read(state: DeviceReading | None) -> dict[str, Any]:
    if state is None:
        return {}
    return {"sm_clock_mhz": state.sm_clock_mhz, "temperature_c": state.temperature_c, "power_w": state.power_w}


def _median(latency: Latency | None) -> float | None:
    return latency.median_us if latency else None


def _caveats(latency: Latency, state: DeviceReading | None) -> list[str]:
    return [line for line in (noise(latency), *device_state.drift(state, state)) if line]


_MODEL: dict[Request, tuple[Subject, Any]] = {}
"""The last run, and in training its optimizer with its state. It has neither compiled code nor CUDA graphs, because the
peak memory is about the same with them."""


def capacity() -> int:
    """Return the free device memory in bytes, after this process has released its own."""
    release()
    forget()
    return int(require("torch.cuda").mem_get_info()[0])


def forget() -> None:
    _MODEL.clear()
    device_state.release()


def peak_bytes(request: Request, batch: int) -> int | None:
    """Return the peak memory of a step at this batch size in bytes; None if it does not fit."""
    try:
        subject, optimizer = _run(request)
        resized = structs.replace(subject, settings=subject.settings.changed(batch_size=batch))
        return ready(resized, optimizer).peak_memory_bytes()
    except InputError as error:
        if isinstance(error.__cause__, require("torch.cuda").OutOfMemoryError):
            return None
        raise
    finally:
        for subject, _ in _MODEL.values():
            subject.model.zero_grad()  # A step that did not fit leaves gradients.
        device_state.release()


def _run(request: Request) -> tuple[Subject, Any]:
    if request not in _MODEL:
        _MODEL.clear()
        changed = optimized(built(request.settings), request)
        subject = structs.replace(changed, compile_mode="", graphs=False)
        optimizer = optimizer_of(subject, subject.model) if subject.training else None
        warm(subject, optimizer)
        _MODEL[request] = subject, optimizer
    return _MODEL[request]


_PROBES = 10
_CLOSE = 0.03
_CAREFUL = 0.97
"""Fraction of the free memory to aim at, because an allocator's blocks do not fill it."""
_GROWTH = 8
"""Largest growth from one run to the next. The optimizer may set the peak of small batches, so that it says little
about large ones."""
_BELOW = 0.9
"""Fraction of a batch size that did not fit to try next."""

Probe = Callable[[int], int | None]
"""Returns the peak bytes of a step at a batch size; None if it does not fit."""


def largest_batch(probe: Probe, capacity: int, start: int, likely: int | None = None) -> int | None:
    """Return the largest batch size that fits, within 3 % or as close as ten runs get; None if `start` does not fit.

    The peak grows in proportion to the batch. A run at a quarter of the `likely` largest batch gives the slope, and
    the third run is close to the limit. Without `likely`, the batch grows at most eightfold from run to run.
    """
    peak = probe(start)
    if peak is None:
        return None
    low, high = start, None
    guess = max(start + 1, likely // 4 if likely else 4 * start)
    slope = 1.0
    for _ in range(_PROBES):
        probed = probe(guess)
        if probed is None:
            high = guess
        else:
            slope = max(1.0, (probed - peak) / (guess - low))
            low, peak = guess, probed
        room = int((capacity - peak) / slope)
        if min(room, high - low if high else room) <= max(1, _CLOSE * low):
            break
        guess = max(low + 1, min(low + int(_CAREFUL * room), _most(low, high)))
    return low


def _most(low: int, high: int | None) -> int:
    """Return the batch size to try between the largest that fits and the smallest that does not; None if there
    is none."""
    if high is None:
        return _GROWTH * low
    if low < high // _GROWTH:
        return high // 4
    return max(int(_BELOW * high), (low + high) // 2)
