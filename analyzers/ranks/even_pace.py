"""How much slower a rank is than its peers everywhere between its calls: a slower host, not a fault at one place."""

import math
from collections.abc import Sequence

import numpy as np

from tracekit.analyzers.ranks.program import Program

_LEAST_CALLS = 8
"""Fewer calls per step do not show where in a step a rank is slower."""


def pace(program: Program, rank: int, others: Sequence[int]) -> float:
    """Return the rank's own time between consecutive calls, relative to the median of others: the median ratio.

    It is weighted by the others' time, so that a pause between two calls does not change it. NaN if unknown.
    """
    own = np.full((program.ranks, len(program.transfer)), np.nan)
    own[program.rank, program.call] = program.start.own
    mine, usual = own[rank, program.order], np.median(own[list(others)], axis=0)[program.order]
    common = ~np.isnan(mine + usual)
    mine, usual = np.diff(mine[common]), np.diff(usual[common])
    mine, usual = mine[usual > 0], usual[usual > 0]
    if len(usual) < _LEAST_CALLS * program.step_end.own.shape[1]:
        return math.nan
    ratio = mine / usual
    rising = np.argsort(ratio, kind="stable")
    weight = np.cumsum(usual[rising])
    return float(ratio[rising][np.searchsorted(weight, weight[-1] / 2)])
