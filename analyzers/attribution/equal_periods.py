"""Finds passes of a model in a sequence of kernels that consists of equal periods only.

The layers of a model repeat, too. A period counts as a pass if layers repeat within it, and if the input of its first
op is not as large as that of its last op. From layer to layer, that size stays the same.
"""

from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.recorded_dims import recorded_shapes

Ints = npt.NDArray[np.int64]

_CANDIDATES = 20
_LAYER = 3
"""Fewest kernels of a layer."""
_RANK = 2
"""Smallest rank of a tensor that is neither a bias nor a number."""


def equal_periods(kernel: Ints) -> int:
    """Return the shortest period of which the whole sequence consists; 0 without one."""
    times = int(np.gcd.reduce(np.bincount(kernel))) if len(kernel) else 0
    for count in range(min(times, len(kernel) // 2), 1, -1):
        period = len(kernel) // count
        if times % count == 0 and (kernel[period:] == kernel[:-period]).all():
            return period
    return 0


def repeats_within(kernel: Ints) -> bool:
    """Return whether a part of several kernels directly follows itself, as layers do."""
    for lag in distances(kernel):
        if lag >= _LAYER:
            unlike = np.flatnonzero(np.concatenate([[True], kernel[lag:] != kernel[:-lag], [True]]))
            if np.diff(unlike).max() > lag:
                return True
    return False


def distances(kernel: Ints) -> list[int]:
    """Return the usual distance between equal kernels, for the kernels that repeat most rarely."""
    count = np.bincount(kernel)[kernel] if len(kernel) else kernel
    usual: dict[int, None] = {}
    for times in np.unique(count[count > 1])[:_CANDIDATES].tolist():
        one = kernel[np.flatnonzero(count == times)[0]]
        usual[int(np.median(np.diff(np.flatnonzero(kernel == one))))] = None
    return list(usual)


def ends_unlike_it_begins(host: pd.DataFrame, op: npt.NDArray[np.integer]) -> bool:
    """Return whether the first and the last of these ops (rows of the host table) have no inputs of equal size. False
    if their shapes were not recorded."""
    known = op[op >= 0]
    if not len(known):
        return False
    first, last = (_sizes(str(host["shapes"].iloc[row])) for row in (known[0], known[-1]))
    return bool(first and last and not first & last)


def _sizes(shapes: str) -> set[int]:
    """Return the number of elements of each tensor with these shapes (JSON text)."""
    return {prod(dims) for dims in recorded_shapes(shapes) if dims and len(dims) >= _RANK}
