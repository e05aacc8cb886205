"""Ranks that exceed their peers by more than ranks usually differ."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

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
