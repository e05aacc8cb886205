"""Distinguishes a rank that is slower everywhere between its calls, as on a slower host, from one that is late at one
place."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.ranks.program import Program

Floats = npt.NDArray[np.float64]

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
