"""The step that a prediction starts from, as a value: how it was timed, and how well it is simulated."""

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.reproduction import Reproduction
from tracekit.analyzers.prediction.values import Check, PredictedBaseline

_DOUBTFUL = (
    "Simulated unchanged, the step takes {simulated:.0f} µs, {error:+.0f} % off the {stated:.0f} µs that it took: more "
    "than 5 %, so something in it is not understood."
)
_PROFILED = (
    "The trace times steps under a profiler only. It is estimated to make up {share:.0f} % of the latency "
    "({low:.0f} % to {high:.0f} % of the host's time): the latencies here hold it, the speed-up does not."
)


def start_of(base: Baseline) -> PredictedBaseline:
    profiled = is_profiled(base)
    return PredictedBaseline(
        latency_us=base.stated_ns / 1e3,
        timed="profiled" if profiled else "modelled" if base.source.kind == "modelled" else "unprofiled",
        profiler_share=max(0.0, 1 - base.latency_ns / base.stated_ns) if profiled else None,
        idle_share=base.idle_share,
        memory=base.memory,
        as_traced=_check(base.as_traced) if base.as_traced else None,
        calibrated=None if profiled else _check(base.calibrated),
    )


def doubts(base: Baseline) -> tuple[str, ...]:
    """What to know of the baseline before believing a prediction from it."""
    start = start_of(base)
    found = []
    if start.profiler_share is not None and base.profiler_share is not None:
        of_host = base.profiler_share
        found.append(_PROFILED.format(share=100 * start.profiler_share, low=100 * of_host.low, high=100 * of_host.high))
    if failed := start.failed:
        found.append(_DOUBTFUL.format(simulated=failed.simulated_us, stated=failed.stated_us, error=100 * failed.error))
    return tuple(found)


def is_profiled(base: Baseline) -> bool:
    """Whether the stated latency holds a profiler's overhead."""
    return base.profiler_share is not None


def _check(found: Reproduction) -> Check:
    return Check(found.stated_us, found.simulated_us, found.error, found.holds)
