"""How long a step takes that waits for workers of a data loader, once the batches that they had made are used up."""

import numpy as np
from msgspec.structs import replace

from tracekit.analyzers.core import Interval, numbers
from tracekit.analyzers.predict.outside import STALL, Outside
from tracekit.analyzers.predict.step_baseline import Baseline

_NUMBERS = numbers(__file__)
WAITED = _NUMBERS["waited"]
"""Fraction of a step above which its time in a loader is a wait for workers. A batch that is there takes less."""
_LONGER = _NUMBERS["longer"]
"""Time that a worker takes for a batch over the longest time in which none arrived."""
_CAUSE = ("data-loading",)


def waits_for_workers(run: Baseline) -> bool:
    """Return whether a step waits for batches that workers make."""
    return run.loader.workers and run.outside.total(_CAUSE) >= WAITED * run.latency_ns


def workers_are_behind(run: Baseline) -> bool:
    """Return whether workers cannot keep up with steps that take batches which were ready before: a batch takes a
    worker longer than as many steps as there are workers. Fewer batches than steps are no sign of that: many workers,
    each of which is slow, bring theirs later."""
    return run.loader.falls_behind and run.loader.least_ns > run.latency_ns


def _probable_ns(run: Baseline) -> float:
    """Return the time of a step for which workers probably make the batches; 0 if most arrived while it was recorded.
    What no worker finished in the longest silence takes as much time again."""
    loader = run.loader
    return min(_LONGER * loader.least_ns, loader.pace_ns(begun=1)) if loader.lives_on_stock else 0.0


def longest_without_wait(run: Baseline, share: Interval, busier: float) -> float:
    """Return the longest latency of the run, in nanoseconds, without a wait for workers that the trace does not show.

    SHARE is the profiler's of the host time. Steps that wait for workers in the trace take as long as usual beside,
    and steps that use up batches as long as the least share allows. Any other host may be BUSIER by this factor.
    """
    usual, slow = (run.simulate(run.ops, 1 - part) - run.rest_ns for part in (share.expected, share.low))
    if waits_for_workers(run):
        return usual
    return slow if run.loader.lives_on_stock else busier * usual


def at_workers_pace(run: Baseline) -> Baseline:
    """Return the run whose steps take as long as the workers take for a batch, if its steps wait for them, or will,
    probably or for sure. Workers are not profiled, and what they made before the recording does not last."""
    waits, slowest = waits_for_workers(run), 0.0
    if waits or workers_are_behind(run):
        pace = max(run.stated_ns, run.loader.pace_ns(begun=int(not waits)))
    elif (pace := _probable_ns(run)) > run.latency_ns:
        slowest = run.loader.pace_ns(begun=1)
    else:
        return run
    slower = replace(run, stated_ns=pace, slowest_ns=slowest)
    return with_wait_for_workers(slower, pace - run.latency_ns + run.rest_ns)


def with_wait_for_workers(run: Baseline, more_ns: float) -> Baseline:
    """Return the run in which a step waits this much longer for batches, and for nothing that is unexplained. Nothing
    runs on the device meanwhile."""
    wait = Outside(np.array(_CAUSE, dtype=object), np.array([max(more_ns, 0.0)]), np.array([STALL]))
    return replace(run, outside=run.outside.joined(wait), rest_ns=0.0)
