"""Finds steps as periods in the sequence of kernels, for traces in which no host event repeats with each step.

The layers of one forward pass repeat, too. A period counts as a step in two cases. Either each one contains a copy
between host and device or a launch of a CUDA graph, and hardly any work lies outside the periods; or the whole sequence
consists of passes (see equal_periods). If copies take much of the time, weights may be copied for each layer, so layers
must repeat within the period.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.origin import Origin
from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.trace import recorded_shapes

_ALIKE = 0.98
"""Fraction of the busy time that must repeat one period later."""
_NOTABLE = 0.2
"""Fraction of the busy time from which copies to the device may be those of each layer's weights."""


def period_starts(items: WorkItems, origin: Origin, begin: int, end: int) -> Ints:
    """Return when the host issued the first kernel of each period on the busiest device; empty without a period."""
    rows, kernel = _sequence(items, origin, begin, end)
    for period in _periods(kernel, items.busy[rows].astype(np.float64)):
        if not _copies_weights(items, kernel, rows, period):
            return origin.time_ns[rows[::period]] if _is_bounded(items, origin, rows, period) else rows[:0]
    return rows[:0]


def pass_starts(host: Host, items: WorkItems, origin: Origin, begin: int, end: int) -> Ints:
    """Return when the host issued the first kernel of each of equal passes; empty if they may be layers."""
    rows, kernel = _sequence(items, origin, begin, end)
    period = equal_periods(kernel)
    is_pass = period and repeats_within(kernel[:period]) and ends_unlike_it_begins(host.table, origin.op[rows[:period]])
    return origin.time_ns[rows[::period]] if is_pass else rows[:0]


def _is_bounded(items: WorkItems, origin: Origin, rows: Ints, period: int) -> bool:
    """Return whether each whole period contains a copy between host and device or a launch of a graph."""
    bounds = (items.said.copies_by_host | (origin.graph >= 0))[rows].astype(np.int64)
    first = np.arange(0, len(rows), period)
    return bool(np.add.reduceat(bounds, first[first + period <= len(rows)]).all())


def _copies_weights(items: WorkItems, kernel: Ints, rows: Ints, period: int) -> bool:
    """Return whether the period may be a layer whose weights are copied to the device."""
    copies = items.said.copies_to_device[rows]
    copying = items.busy[rows][copies].sum()
    computing = kernel[:period][~copies[:period]]
    return bool(copying >= _NOTABLE * items.busy[rows].sum()) and not repeats_within(computing)


def _sequence(items: WorkItems, origin: Origin, begin: int, end: int) -> tuple[Ints, Ints]:
    """Return the items of the busiest device in the order of their launches, and within a launch of their starts; and
    a number for each name, in a graph and outside. Both are empty for a run without device work."""
    if not items.on_device:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    busy = pd.Series(items.busy).groupby(items.device).sum()
    inside = (items.device == busy.idxmax()) & (origin.time_ns >= begin) & (origin.time_ns <= end)
    rows = np.flatnonzero(inside)
    rows = rows[np.lexsort((items.start[rows], origin.time_ns[rows]))]
    kernel, _ = pd.factorize(2 * items.name.cat.codes.to_numpy()[rows].astype(np.int64) + (origin.graph[rows] >= 0))
    return rows, kernel


def _periods(kernel: Ints, weight: Floats) -> Iterator[int]:
    """Yield the periods of nearly the whole sequence, shortest first."""
    for period in sorted(distances(kernel)):
        alike = kernel[period:] == kernel[:-period]
        later, earlier = weight[period:] * alike, weight[:-period] * alike
        total = weight.sum()
        edges = weight[:period].sum() + later.sum(), weight[-period:].sum() + earlier.sum()
        if period > 1 and min(edges) >= _ALIKE * total:
            yield period


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
