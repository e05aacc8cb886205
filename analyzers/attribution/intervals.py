"""Time that intervals cover, counted once. Starts and ends are int64 nanoseconds, one pair an interval."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min
_FITS = 2**62


def covered_until(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Per interval, the latest end among those that started before it on its track; the smallest int64 for the first.

    Of intervals that start together, the one that comes first in the input counts as earlier.
    """
    if len(start) < 2:
        return np.full(len(start), _NEVER, dtype=np.int64)
    if _in_order(start, track):
        return _covered_in_order(end, track)
    order = np.lexsort((start, track))
    until = np.empty(len(start), dtype=np.int64)
    until[order] = _covered_in_order(end[order], track[order])
    return until


def _in_order(start: Ints, track: npt.NDArray) -> bool:
    step = np.diff(track)
    return bool((step >= 0).all() and (np.diff(start)[step == 0] >= 0).all())


def _covered_in_order(end: Ints, track: npt.NDArray) -> Ints:
    is_first = np.diff(track, prepend=track[:1] - 1) != 0
    until = np.empty(len(end), dtype=np.int64)
    until[1:] = _running_max(end, np.cumsum(is_first) - 1)[:-1]
    until[is_first] = _NEVER
    return until


def _running_max(values: Ints, group: Ints) -> Ints:
    """Running maximum that starts anew in each group; groups are numbered from 0 and contiguous.

    Each group is lifted above all values of the groups before it; where that does not fit, ranks stand for the values.
    """
    low = int(values.min())
    height = int(values.max()) - low + 1
    if height * (int(group[-1]) + 1) < _FITS:
        lift = group * height - low
        return np.maximum.accumulate(values + lift) - lift
    by_value = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[by_value] = np.arange(len(values))
    best = np.maximum.accumulate(group * len(values) + rank)
    return values[by_value[best - group * len(values)]]


def newly_covered_ns(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Per interval, the part that no earlier-starting interval of its track covers; sums to `union_ns`."""
    return np.maximum(end - np.maximum(start, covered_until(start, end, track)), 0)


def idle_before_ns(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Per interval, how long its track was idle just before it; 0 for the first of a track."""
    until = covered_until(start, end, track)
    return np.where(until == _NEVER, 0, np.maximum(start - np.where(until == _NEVER, start, until), 0))


def union_ns(start: Ints, end: Ints) -> int:
    """Length of the union of the intervals."""
    return int(newly_covered_ns(start, end, np.zeros(len(start), dtype=np.int64)).sum())
