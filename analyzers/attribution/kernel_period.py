"""Finds steps as periods in the sequence of kernels, for traces without host events.

The layers of one forward pass repeat, too. A period therefore counts as a step only if each one contains a copy between
host and device or a launch of a CUDA graph, and if hardly any work lies outside the periods.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_host_copy
from tracekit.analyzers.attribution.origin import Origin
from tracekit.analyzers.attribution.work_items import WorkItems

Ints = npt.NDArray[np.int64]

_CANDIDATES = 20
_ALIKE = 0.98
"""Fraction of the busy time that must repeat one period later."""


def period_starts(items: WorkItems, origin: Origin, begin: int, end: int) -> Ints:
    """Return when the host issued the first kernel of each period on the busiest device; empty without a period."""
    none = np.zeros(0, dtype=np.int64)
    if not items.on_device:
        return none
    rows = _in_order(items, origin, begin, end)
    kernel, _ = pd.factorize(items.name.cat.codes.to_numpy()[rows].astype(np.int64))
    period = _period(kernel, items.busy[rows].astype(np.float64))
    if not period:
        return none
    first = np.arange(0, len(rows), period)
    bounded = np.zeros(len(items.start), dtype=np.int64)
    bounded[:] = is_host_copy(items.name) | (origin.graph >= 0)
    whole = first[first + period <= len(rows)]
    if not np.add.reduceat(bounded[rows], whole).all():
        return none
    return origin.time_ns[rows[first]]


def _in_order(items: WorkItems, origin: Origin, begin: int, end: int) -> Ints:
    """Return the items of the busiest device in the order of their launches, and within a launch of their starts."""
    busy = pd.Series(items.busy).groupby(items.device).sum()
    inside = (items.device == busy.idxmax()) & (origin.time_ns >= begin) & (origin.time_ns <= end)
    rows = np.flatnonzero(inside)
    return rows[np.lexsort((items.start[rows], origin.time_ns[rows]))]


def _period(kernel: Ints, weight: npt.NDArray[np.float64]) -> int:
    """Return the shortest period of the sequence, or 0. The distances between the rarest repeated kernels are tried."""
    count = np.bincount(kernel)[kernel] if len(kernel) else kernel
    distances: dict[int, None] = {}
    for times in np.unique(count[count > 1])[:_CANDIDATES].tolist():
        one = kernel[np.flatnonzero(count == times)[0]]
        distances[int(np.median(np.diff(np.flatnonzero(kernel == one))))] = None
    for period in sorted(distances):
        alike = kernel[period:] == kernel[:-period]
        later, earlier = weight[period:] * alike, weight[:-period] * alike
        total = weight.sum()
        edges = weight[:period].sum() + later.sum(), weight[-period:].sum() + earlier.sum()
        if period > 1 and min(edges) >= _ALIKE * total:
            return period
    return 0
