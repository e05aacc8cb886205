"""Ranks that hold up the others: which ones, and what they cost the job.

A rank is named if all of these hold:

- Its own time (without exposed communication) exceeds the median of its peers by at least LEAST_EXCESS of a step.
- The excess is significant: the interval of its mean over the steps (confidence 99 %, divided among the ranks) is above
  zero. Outlying steps are clipped at Tukey's fences, because a pause of the machine says nothing about the rank. With
  fewer than LEAST_STEPS steps, it must be at least LEAST_ONCE of a step in every one of them instead.
- Among four or more ranks, it is an outlier: more than OUTLIER times the usual deviation between ranks.
- The simulated job is faster by at least LEAST_COST of a step if the rank takes the own time of its typical peer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.ranks.own_parts import OwnParts
from tracekit.analyzers.ranks.peers import peers, typical
from tracekit.analyzers.ranks.program import Program
from tracekit.analyzers.ranks.simulate import step_times, without
from tracekit.analyzers.ranks.student import mean_interval

Floats = npt.NDArray[np.float64]

LEAST_EXCESS, LEAST_COST, LEAST_ONCE = 0.03, 0.02, 0.10
LEAST_STEPS = 4
OUTLIER = 5.0
CONFIDENCE = 0.99
SHOWN_CONFIDENCE = 0.8
_MAD = 1.4826
_MOST_SIMULATED = 16
_LEAST_FOR_SPREAD = 4


@dataclass(frozen=True)
class Cost:
    """The cost of a rank to the job. `rank` and `peer` are positions."""

    rank: int
    peer: int
    share: Interval
    """Fraction of a step's time that is saved if the rank takes the own time of its peer."""
    excess_ns: float
    """Own time per step beyond the median of its peers."""


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of the ranks with the largest excess, and those of the ranks that are named."""

    step_ns: Floats
    """Simulated time of each step of the job."""
    of: tuple[Cost, ...]
    named: tuple[Cost, ...]


def costs(program: Program, parts: OwnParts) -> Costs:
    """Simulate the cost of the ranks with the largest excess, and select those to name."""
    base, others = step_times(program), peers(program)
    excess = np.array([parts.own[rank] - np.median(parts.own[mine], axis=0) for rank, mine in enumerate(others)])
    candidates = np.argsort(-excess.mean(axis=1), kind="stable")[:_MOST_SIMULATED]
    simulated = [_cost(program, parts, base, int(rank), others[rank], excess) for rank in candidates]
    beyond = _beyond_chance(excess, float(base.mean()))
    named = [each for each in simulated if beyond[each.rank] and each.share.expected >= LEAST_COST]
    return Costs(base, tuple(simulated), tuple(sorted(named, key=lambda each: -each.share.expected)))


def _cost(program: Program, parts: OwnParts, base: Floats, rank: int, others: list[int], excess: Floats) -> Cost:
    peer = typical(parts.own, others)
    saved = (base - without(program, rank, peer)) / max(base.mean(), 1.0)
    share = mean_interval(saved, SHOWN_CONFIDENCE)
    low, high = (share.low, share.high) if len(saved) > 1 else (share.expected, share.expected)
    clipped = Interval(max(0.0, low), max(0.0, share.expected), min(1.0, max(0.0, high)))
    return Cost(rank, peer, clipped, float(excess[rank].mean()))


def _beyond_chance(excess: Floats, step_ns: float) -> npt.NDArray[np.bool_]:
    """Return, for each rank, whether its excess is significant over the steps and an outlier among the ranks."""
    ranks, steps = excess.shape
    least, excess = excess.min(axis=1), _fenced(excess)
    mean = excess.mean(axis=1)
    enough = mean >= LEAST_EXCESS * step_ns
    if steps < LEAST_STEPS:
        enough &= least >= LEAST_ONCE * step_ns
    else:
        confidence = 1 - (1 - CONFIDENCE) / ranks
        enough &= np.array([mean_interval(values, confidence).low > 0 for values in excess])
    if ranks >= _LEAST_FOR_SPREAD:
        enough &= mean > OUTLIER * _MAD * np.median(np.abs(mean - np.median(mean)))
    return enough


def _fenced(excess: Floats) -> Floats:
    """Clip the values of each rank at 1.5 interquartile ranges beyond the quartiles."""
    low, high = np.quantile(excess, [0.25, 0.75], axis=1, keepdims=True)
    return np.clip(excess, low - 1.5 * (high - low), high + 1.5 * (high - low))
