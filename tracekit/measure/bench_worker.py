"""Measures a row of a bench beside the first configuration of its run."""

from dataclasses import dataclass, field, replace
from typing import Any

from tracekit.analyzers.results import DeviceReading, Quality
from tracekit.analyzers.trace import Latency
from tracekit.apply import SEED, Subject
from tracekit.capture import NoRanges, clock_of, models, time_step
from tracekit.measure import device_state, trial
from tracekit.measure.bench_rows import Row
from tracekit.measure.configurations import Configuration
from tracekit.measure.interleaved import WALL_S, CpuShare, noise
from tracekit.measure.quality import Evaluation, judged, token_windows
from tracekit.measure.side_by_side import Measured, Ready, beside, ready, warm
from tracekit.run import Settings, require

_CALIBRATION_WINDOWS = 16


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
    """Text that `awq` and `smoothquant` are calibrated with."""
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
        after = ready(changed(before.subject, request))
        comparison = beside(before, after, resident_bytes=resident, wall_s=request.wall_s)
        return _filled(request, after, comparison)
    finally:
        require("torch.compiler").reset()


def release() -> None:
    """Free the models that are kept between rows. They are built again when they are needed."""
    _CACHE.release()


def changed(subject: Subject, request: Request) -> Subject:
    """Apply the request's configuration to the run as it was built, without the changes of the first configuration."""
    plain = replace(subject, compile_mode="", graphs=False, static_cache=False, fused_optimizer=False)
    return _applied(request.configuration, plain, request)


def _applied(configuration: Configuration, subject: Subject, request: Request) -> Subject:
    def windows(calibrated: Subject) -> list[Any]:
        every = list(token_windows(calibrated, Evaluation("", text=request.calibration)))
        return [window for window in every if len(window) == len(every[0])][:_CALIBRATION_WINDOWS]

    return configuration.apply(subject, windows)


def _filled(request: Request, run: Ready, comparison: Measured | None) -> Row:
    """Return the row with its measurements: first only the latency, then the state under load, then the others."""
    settings = run.subject.settings
    with run.subject.numerics():
        cpu = CpuShare()
        times = time_step(run.step, clock_of(settings.device))
        warnings = comparison.warnings if comparison else (cpu.warning(),) if settings.device == "cpu" else ()
        state, busy = device_state.under_load(lambda: run.step(NoRanges()))
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
