"""The peers of each rank: ranks with the same work, to compare it with."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.ranks.program import Program

Floats = npt.NDArray[np.float64]


Ints = npt.NDArray[np.int64]

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
    mine, usual = _between_calls(program, rank, others)
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
    mine, usual = _between_calls(program, rank, others)
    steps = program.step_end.own.shape[1]
    return float(np.sort(mine - usual)[-steps:].sum()) / steps


def _between_calls(program: Program, rank: int, others: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the own time of the rank, and the median of the others, between the start, consecutive calls and the
    end."""
    own = np.full((program.ranks, len(program.transfer)), np.nan)
    own[program.rank, program.call] = program.start.own
    own = np.column_stack([np.zeros(program.ranks), own[:, program.order], program.step_end.own[:, -1]])
    mine, usual = own[rank], np.median(own[list(others)], axis=0)
    common = ~np.isnan(mine + usual)
    return np.diff(mine[common]), np.diff(usual[common])
