"""What no change of a step can beat: the step that remains once the work that a change is about takes no time, and the
longest that the step may take now."""

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from tracekit.analyzers.predict import Baseline


def remaining_ns(outcomes: Iterable[Baseline], before: Baseline, logs: Collection[float]) -> Mapping[float, float]:
    """Return the time in nanoseconds of what remains of a step in its shortest outcome, by the logarithm of a host's
    slowness: on the expected one, the fastest and the slowest.

    The profiler's share in the host time that remains may be as large as in any run, whatever it is in the whole step;
    where all of it remains, it is the same, and kernels wait for launches as before.
    """
    shortest = min(outcomes, key=lambda run: run.latency_ns)
    fewer = _host_ns(shortest) < _host_ns(before)
    rest, part = (_remaining(shortest, before), shortest.unevenly) if fewer else (shortest, 1.0)
    some = sorted({min(logs), 0.0, max(logs)})
    hosts = zip(some, rest.hosts(tuple(map(math.exp, some))), strict=True)
    return {log: rest.simulate(rest.ops, launches * part, unexplained) for log, (launches, unexplained) in hosts}


def slowest_ns(outcomes: Iterable[Baseline], before: Baseline) -> float:
    """Return the longest time in nanoseconds that workers of a data loader may make of the step before, if some outcome
    waits less for them; 0: none does, or the trace tells how long they take."""
    loading = {run.outside.total(("data-loading",)) for run in (before, *outcomes)}
    return before.slowest_ns if len(loading) > 1 else 0.0


def _host_ns(run: Baseline) -> float:
    return float(run.ops.host_ns.sum() + run.outside.total())


def _remaining(run: Baseline, before: Baseline) -> Baseline:
    """Return the run in which streams work side by side, without the host work of causes of which it has less than
    before."""
    now, then = run.outside, before.outside
    causes = [cause for cause in set(then.cause) if now.total((cause,)) < then.total((cause,))]
    beside = run.ops.kernel_ns * (run.side_by_side * run.overlap)
    return replace(run, outside=now.scaled(0.0, causes), ops=run.ops.assign(kernel_ns=beside))
