"""Finds the ranks that delay the others, and their cost to the job.

A rank is named for its own time (own_time.py), or for one class of it: its device's work, its
copies, its data loading, or garbage collection. All of these must hold:

- It exceeds the median of the rank's peers by at least LEAST_EXCESS of a step.
- The excess is significant: the interval of its mean over the steps (confidence 99 %, divided among the ranks) is
  above zero, with outlying steps clipped at Tukey's fences, because a pause of the machine is not due to the rank.
  Or it is at least LEAST_ONCE of a step in every step. With fewer than LEAST_STEPS steps, only the latter counts.
- Among four or more ranks, it is an outlier (own_parts.py). Fewer ranks do not show how much hosts differ without a
  fault, so a host must be later by HOSTS_DIFFER of its peers' own time, without the time of additional work, and
  EXPLAINS of that must occur at one place in a step (own_parts.py).
- The simulated job is faster by at least LEAST_COST of a step without it: if the rank takes the own time of its typical
  peer, or its peers' time for that class.

The time of one class is known better than the sum, in which uneven hosts hide it. A rank that waits for data
or collects garbage is named even if nobody waits for it. The count of its work is known best (causes.py): a rank
whose additional work takes LEAST_COST of its peers' computation is named even if nobody waits for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analyzers.core import Bools, Floats, Interval, numbers
from tracekit.analyzers.ranks.causes import excess_over
from tracekit.analyzers.ranks.own_parts import (
    LEAST_FOR_SPREAD,
    OwnParts,
    longest_pause,
    mean_interval,
    outliers,
    pace,
    peers,
    typical,
)
from tracekit.analyzers.ranks.program import Program
from tracekit.analyzers.ranks.simulate import step_times

LEAST_EXCESS, LEAST_COST, LEAST_ONCE = 0.03, 0.02, 0.10
LEAST_STEPS = 4
HOSTS_DIFFER = numbers(__file__)["hosts_differ"]
"""Relative difference that healthy hosts of one job do not reach."""
EXPLAINS = 0.5
"""Additional work that accounts for this fraction of an excess is its cause, because counts are known better than
times. A pause that accounts for this fraction is a fault of the host."""
CONFIDENCE = 0.99
SHOWN_CONFIDENCE = 0.8
ON_ITS_OWN = ("compute", "copies", "data loading", "garbage collection")
"""Classes for which a rank is named separately. The rest of the host's time varies too much between hosts."""
_ALWAYS_NAMED = ("data loading", "garbage collection")
"""Classes for which a rank is named even if nobody waits for it now."""
MORE_WORK = "more work"
"""The class of work whose counts exceed those of the peers; a rank is named for it even if nobody waits for it."""
_ON_DEVICE = ("compute", "copies", MORE_WORK)
_MOST_SIMULATED = 16


@dataclass(frozen=True)
class Cost:
    """The cost of a rank to the job. `rank` and `peer` are positions."""

    rank: int
    peer: int
    share: Interval
    """Fraction of a step that is saved without the rank's excess."""
    excess_ns: float
    """Own time per step beyond the median of its peers."""
    of: str = ""
    """The class to which the excess belongs; "": all own time."""


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of the ranks with the largest excess, and those of the ranks that are named."""

    step_ns: Floats
    """Simulated time of each step of the job."""
    of: tuple[Cost, ...]
    named: tuple[Cost, ...]
    slower_hosts: tuple[tuple[int, float], ...] = ()
    """Ranks that are not named because their hosts are slower everywhere, with the factor."""


def costs(program: Program, parts: OwnParts, extra: Mapping[int, float]) -> Costs:
    """Simulate the cost of the ranks with the largest excess, and select those to name.

    `extra` is the time of the ranks' additional work, in ns per step.
    """
    run = _Run(program, parts, step_times(program), peers(program))
    simulated, late = _costs_of_own_time(run)
    paces = {each.rank: _pace_of_uneven_host(run, each, extra.get(each.rank, 0.0)) for each in late}
    costly = _costly(run, [each for each in late if paces[each.rank] is None], extra)
    slower = tuple((rank, times) for rank, times in paces.items() if times and times > 1 + LEAST_EXCESS)
    return Costs(run.base, tuple(simulated), _largest_of_each(costly), slower)


def _costs_of_own_time(run: "_Run") -> tuple[list[Cost], list[Cost]]:
    """Return the costs of the ranks with the largest excess, and of those that are significantly late."""
    excess = _excess(run.parts.own, run.others)
    late = _exceeds_chance(excess, float(run.base.mean()), run.others)
    candidates = np.argsort(-excess.mean(axis=1), kind="stable")[:_MOST_SIMULATED].tolist()
    simulated = [run.like_peer(rank, excess[rank]) for rank in candidates]
    return simulated, [each for each in simulated if late[each.rank]]


def _costly(run: "_Run", whole: Sequence[Cost], extra: Mapping[int, float]) -> list[Cost]:
    """Return the costs for which a rank is named: for one class of its own time, for the `whole` own time, and for
    additional work."""
    classes = [each for each in _costs_of_classes(run) if each.of in _ALWAYS_NAMED or each.share.expected >= LEAST_COST]
    costly = [*classes, *(each for each in whole if each.share.expected >= LEAST_COST)]
    costly = [_by_its_work(each, extra.get(each.rank, 0.0)) for each in costly]
    return costly + [run.without(rank, time, MORE_WORK) for rank, time in extra.items() if _is_much(run, rank, time)]


def _largest_of_each(costly: Sequence[Cost]) -> tuple[Cost, ...]:
    """Return the largest cost of each rank, largest first."""
    falling = sorted(costly, key=lambda each: -each.share.expected)
    largest = {each.rank: each for each in reversed(falling)}
    return tuple(each for each in falling if largest[each.rank] is each)


def _by_its_work(cost: Cost, extra_ns: float) -> Cost:
    """Return the cost with its cause: additional work, if that takes EXPLAINS of the excess of own time."""
    explained = cost.of in ("", "compute") and extra_ns >= EXPLAINS * cost.excess_ns
    return replace(cost, of=MORE_WORK, excess_ns=extra_ns) if explained and extra_ns > 0 else cost


@dataclass(frozen=True, eq=False)
class _Run:
    """The simulated job, its ranks' own times, and the peers of each."""

    program: Program
    parts: OwnParts
    base: Floats
    others: list[list[int]]

    def like_peer(self, rank: int, excess: Floats) -> Cost:
        """Return the cost of the excess in each step: a peer with the same calls takes its place, if there is one."""
        peer = typical(self.parts.own, self.others[rank])
        if not self.program.same_calls(rank, peer):
            return self.without(rank, excess, "")
        return Cost(rank, peer, _share(self.base, step_times(self.program.like(rank, peer))), float(excess.mean()))

    def without(self, rank: int, saved: Floats | float, name: str) -> Cost:
        """Return the cost of the time `saved` of a class in each step."""
        saved = np.broadcast_to(saved, self.base.shape)
        lighter = self.program.lighter(rank, saved, on_device=name in _ON_DEVICE)
        peer = typical(self.parts.own, self.others[rank])
        return Cost(rank, peer, _share(self.base, step_times(lighter)), float(saved.mean()), name)


def _pace_of_uneven_host(run: _Run, cost: Cost, extra_ns: float) -> float | None:
    """Return the pace of a rank whose excess, without its additional work, is due to its host and within the range of
    hosts without a fault.

    Return None for other ranks.
    """
    others = run.others[cost.rank]
    largest = max(run.parts.parts, key=lambda name: excess_over(run.parts.parts[name], cost.rank, others))
    if run.program.ranks >= LEAST_FOR_SPREAD or largest != "host":
        return None
    usual = float(np.median(run.parts.own[others], axis=0).mean())
    spread = longest_pause(run.program, cost.rank, others) < EXPLAINS * cost.excess_ns
    little = cost.excess_ns - extra_ns < HOSTS_DIFFER * usual
    return pace(run.program, cost.rank, others) if spread or little else None


def _is_much(run: _Run, rank: int, extra_ns: float) -> bool:
    """Return whether additional work takes LEAST_COST of the peers' computation."""
    compute = np.median(run.parts.parts["compute"][run.others[rank]], axis=0).mean()
    return bool(extra_ns > 0 and extra_ns >= LEAST_COST * compute)


def _costs_of_classes(run: _Run) -> list[Cost]:
    """Return the costs of the ranks that take longer than their peers for one class of own time."""
    costly = []
    for name in ON_ITS_OWN:
        excess = _excess(run.parts.parts[name], run.others)
        late = np.flatnonzero(_exceeds_chance(excess, float(run.base.mean()), run.others))[:_MOST_SIMULATED].tolist()
        costly += [run.without(rank, np.maximum(excess[rank], 0.0), name) for rank in late]
    return costly


def _excess(times: Floats, others: Sequence[Sequence[int]]) -> Floats:
    """Return each rank's time beyond the median of its peers, as ranks × steps."""
    return np.array([times[rank] - np.median(times[mine], axis=0) for rank, mine in enumerate(others)])


def _share(base: Floats, better: Floats) -> Interval:
    """Return the fraction of a step that is saved, from 0 to 1."""
    saved = (base - better) / max(base.mean(), 1.0)
    share = mean_interval(saved, SHOWN_CONFIDENCE)
    low, high = (share.low, share.high) if len(saved) > 1 else (share.expected, share.expected)
    return Interval(max(0.0, low), max(0.0, share.expected), min(1.0, max(0.0, high)))


def _exceeds_chance(excess: Floats, step_ns: float, others: Sequence[Sequence[int]]) -> Bools:
    """Return, for each rank, whether its excess is significant over the steps and an outlier among the ranks.

    `others` are the peers of each.
    """
    ranks, steps = excess.shape
    always, excess = excess.min(axis=1) >= LEAST_ONCE * step_ns, _fenced(excess)
    mean = excess.mean(axis=1)
    confidence = 1 - (1 - CONFIDENCE) / ranks
    significant = np.array([mean_interval(values, confidence).low > 0 for values in excess])
    enough = (mean >= LEAST_EXCESS * step_ns) & (always | (significant & (steps >= LEAST_STEPS)))
    return enough & outliers(mean, others)


def _fenced(excess: Floats) -> Floats:
    """Clip the values of each rank at 1.5 interquartile ranges beyond the quartiles."""
    low, high = np.quantile(excess, [0.25, 0.75], axis=1, keepdims=True)
    return np.clip(excess, low - 1.5 * (high - low), high + 1.5 * (high - low))
