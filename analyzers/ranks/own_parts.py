"""The own time of each rank in each step by class, the counts of its work, and the ranks with the same work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.core import Bools, Floats, Interval, Ints, t_quantile
from tracekit.analyzers.ranks.program import Program
from tracekit.analyzers.ranks.summary import RankSummary

CLASSES = ("compute", "copies", "data loading", "garbage collection", "host")
_CLASS_OF = {
    "data-loading": "data loading",
    "preprocessing": "data loading",
    "garbage-collection": "garbage collection",
    "transfer": "copies",
}


@dataclass(frozen=True, eq=False)
class OwnParts:
    """Own time and its parts by class, which sum to it, as arrays of ranks × steps in ns."""

    own: Floats
    parts: dict[str, Floats]
    idle: dict[str, Floats]
    """Idle time by cause."""
    counts: dict[str, Floats]
    """FLOPs and bytes of the work."""


def own_parts(ranks: Sequence[RankSummary], first: Sequence[int], steps: int) -> OwnParts:
    """Return the own times of `steps` steps from the `first` of each rank.

    Time between steps counts as the host's, in the step that follows.
    """
    tables = [rank.steps.iloc[at : at + steps] for rank, at in zip(ranks, first, strict=True)]
    stacked = {name: np.array([table[name] for table in tables], dtype=float) for name in _NAMES}
    idle = _idle(ranks, first, steps)
    parts = {name: np.zeros((len(ranks), steps)) for name in CLASSES}
    parts["compute"] = stacked["compute_ns"]
    parts["copies"] = parts["copies"] + stacked["exposed_copy_ns"]
    for cause, time in idle.items():
        name = _CLASS_OF.get(cause, "host")
        parts[name] = parts[name] + time
    own = np.diff(stacked["own_end_ns"], axis=1, prepend=stacked["own_start_ns"][:, :1])
    parts["host"] = parts["host"] + own - sum(parts.values())
    return OwnParts(own, parts, idle, {name: stacked[name] for name in _COUNTS})


_COUNTS = ("flops", "bytes")
_NAMES = ("compute_ns", "exposed_copy_ns", "own_start_ns", "own_end_ns", *_COUNTS)


def _idle(ranks: Sequence[RankSummary], first: Sequence[int], steps: int) -> dict[str, Floats]:
    position = np.repeat(np.arange(len(ranks)), [len(rank.idle) for rank in ranks])
    step = np.concatenate([rank.idle["step"].to_numpy() for rank in ranks]) - np.asarray(first)[position]
    cause = np.concatenate([rank.idle["cause"].astype(object).to_numpy() for rank in ranks])
    time = np.concatenate([rank.idle["idle_ns"].to_numpy() for rank in ranks])
    inside = (step >= 0) & (step < steps)
    times = {}
    for name in sorted(set(cause.tolist())):
        rows = inside & (cause == name)
        place = position[rows] * steps + step[rows]
        sums = np.bincount(place, time[rows].astype(np.float64), len(ranks) * steps)
        times[str(name)] = sums.astype(np.float64).reshape(len(ranks), steps)
    return times


OUTLIER = 5.0
LEAST_FOR_SPREAD = 4
"""With fewer ranks, it is unknown how much ranks usually differ."""
_MAD = 1.4826


def outliers(excess: Floats, peers: Sequence[Sequence[int]]) -> Bools:
    """Return, for each rank, whether its excess is OUTLIER times the usual deviation; with few ranks, all are.

    A rank with few peers makes its peers deviate, so the usual deviation is that of the other ranks.
    """
    if len(excess) < LEAST_FOR_SPREAD:
        return np.ones(len(excess), dtype=bool)
    apart = np.abs(excess - np.median(excess))
    usual = np.full(len(excess), np.median(apart))
    for rank in np.flatnonzero([len(mine) + 1 < LEAST_FOR_SPREAD for mine in peers]).tolist():
        usual[rank] = np.median(np.delete(apart, [rank, *peers[rank]]))
    return excess > OUTLIER * _MAD * usual


def mean_interval(values: npt.NDArray, confidence: float) -> Interval:
    """Return the mean with its two-sided interval, which is infinitely wide for fewer than two values."""
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval(-math.inf, mean, math.inf)
    half = t_quantile(0.5 + confidence / 2, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean - half, mean, mean + half)


UNLIKE = 0.2
"""Ranks are not compared if their numbers of calls by kind differ by more than this fraction."""


def peers(program: Program) -> list[list[int]]:
    """Return, for each rank, the other ranks with about as many calls of each kind; all others if there are none.

    The stages of a pipeline make different calls, so each rank is compared with those of its own stage.
    """
    everyone = np.arange(program.ranks)
    return [mine or everyone[everyone != rank].tolist() for rank, mine in enumerate(alike(program))]


def alike(program: Program) -> list[list[int]]:
    """Return, for each rank, the other ranks with about as many calls of each kind."""
    number, everyone = _alike(_calls_by_kind(program)), np.arange(program.ranks)
    return [everyone[(number == number[rank]) & (everyone != rank)].tolist() for rank in everyone]


def _calls_by_kind(program: Program) -> Ints:
    kinds, code = np.unique(program.kind.astype(str), return_inverse=True)
    counts = np.zeros((program.ranks, len(kinds)), dtype=np.int64)
    np.add.at(counts, (program.rank, code), 1)
    return counts


def _alike(counts: Ints) -> Ints:
    """Number the sets of rows that differ little from the first row of the set."""
    number = np.full(len(counts), -1)
    for row in range(len(counts)):
        if number[row] < 0:
            apart = np.abs(counts - counts[row]).sum(axis=1)
            number[(number < 0) & (apart <= UNLIKE * counts[row].sum())] = row
    return number


def typical(own: Floats, ranks: list[int]) -> int:
    """Return the rank whose own time is the median; the lower one of two."""
    total = own[ranks].sum(axis=1)
    return ranks[int(np.argsort(total, kind="stable")[(len(ranks) - 1) // 2])]


_LEAST_CALLS = 8
"""With fewer calls per step, it is unknown where in a step a rank is slower."""


def pace(program: Program, rank: int, others: Sequence[int]) -> float:
    """Return the median ratio of the rank's own time between consecutive calls to the median of the others.

    It is weighted by the others' time, so that a pause between two calls does not change it. NaN if unknown.
    """
    mine, usual = _own_time_between_calls(program, rank, others)
    mine, usual = mine[usual > 0], usual[usual > 0]
    if len(usual) < _LEAST_CALLS * program.step_end.own.shape[1]:
        return math.nan
    ratio = mine / usual
    rising = np.argsort(ratio, kind="stable")
    weight = np.cumsum(usual[rising])
    return float(ratio[rising][np.searchsorted(weight, weight[-1] / 2)])


def longest_pause(program: Program, rank: int, others: Sequence[int]) -> float:
    """Return the rank's longest pauses between two calls beyond the median of the others, one per step, in ns per
    step."""
    mine, usual = _own_time_between_calls(program, rank, others)
    steps = program.step_end.own.shape[1]
    return float(np.sort(mine - usual)[-steps:].sum()) / steps


def _own_time_between_calls(program: Program, rank: int, others: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the own time of the rank, and the median of the others, between the start, consecutive calls and the
    end."""
    own = np.full((program.ranks, len(program.transfer)), np.nan)
    own[program.rank, program.call] = program.start.own
    own = np.column_stack([np.zeros(program.ranks), own[:, program.order], program.step_end.own[:, -1]])
    mine, usual = own[rank], np.median(own[list(others)], axis=0)
    common = ~np.isnan(mine + usual)
    return np.diff(mine[common]), np.diff(usual[common])
