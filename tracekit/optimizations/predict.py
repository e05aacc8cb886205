"""From a transform to a predicted speed-up, as an interval."""

from itertools import product

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.optimizations.base import Optimization, Outcome

OUTCOMES: tuple[Outcome, ...] = ("low", "expected", "high")


def predicted_speedup(optimization: Optimization, base: Baseline) -> Interval:
    """End-to-end speed-up of one step: latency before over after, times the work done.

    The ends are the extremes over how well the optimization turns out and over the host times that the evidence
    leaves open.
    """
    after = {outcome: optimization.transform(base, outcome) for outcome in OUTCOMES}

    def speedup(outcome: Outcome, host_factor: float) -> float:
        before = base.simulate(base.ops, host_factor)
        return optimization.work_factor * before / base.simulate(after[outcome], host_factor)

    hosts = {base.host_range.low, base.host_range.expected, base.host_range.high}
    seen = [speedup(outcome, host) for outcome, host in product(OUTCOMES, hosts)]
    return Interval(min(seen), speedup("expected", base.host_range.expected), max(seen))
