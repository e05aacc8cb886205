"""The step that predictions start from: how it was timed, and how well the simulation reproduces it."""

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.reproduction import Reproduction
from tracekit.analyzers.prediction.values import Check, PredictedBaseline

_DOUBTFUL = (
    "Simulated without changes, the step takes {simulated:.0f} µs, {error:+.0f} % off the {stated:.0f} µs that it "
    "took. This exceeds 5 %: the simulation misses a part of the step."
)
_PROFILED = (
    "The trace times steps only under a profiler, whose overhead is estimated as {share:.0f} % of the latency "
    "({low:.0f} % to {high:.0f} % of the host's time). The latencies here include it, the speed-up does not."
)


def start_of(base: Baseline) -> PredictedBaseline:
    """Return the step that predictions start from."""
    profiled = is_profiled(base)
    return PredictedBaseline(
        latency_us=base.stated_ns / 1e3,
        timed="profiled" if profiled else "modelled" if base.source.kind == "modelled" else "unprofiled",
        profiler_share=max(0.0, 1 - base.latency_ns / base.stated_ns) if profiled and base.stated_ns else None,
        host_speed=base.host_speed,
        idle_share=base.idle_share,
        memory=base.memory,
        as_traced=_check(base.as_traced) if base.as_traced else None,
        calibrated=None if profiled else _check(base.calibrated),
    )


def doubts(base: Baseline) -> tuple[str, ...]:
    """Return the caveats about the baseline for any prediction from it."""
    start = start_of(base)
    notes = []
    if start.profiler_share is not None and base.profiler_share is not None:
        of_host = base.profiler_share
        notes.append(_PROFILED.format(share=100 * start.profiler_share, low=100 * of_host.low, high=100 * of_host.high))
    if failed := start.failed:
        notes.append(_DOUBTFUL.format(simulated=failed.simulated_us, stated=failed.stated_us, error=100 * failed.error))
    return tuple(notes)


def is_profiled(base: Baseline) -> bool:
    """Return whether the stated latency includes the overhead of a profiler."""
    return base.profiler_share is not None


def _check(reproduction: Reproduction) -> Check:
    return Check(reproduction.stated_us, reproduction.simulated_us, reproduction.error, reproduction.holds)
