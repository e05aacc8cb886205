"""Computes the time that intervals cover. Starts and ends are arrays of int64 nanoseconds.

A track is a device or a thread. Intervals on different tracks never count as overlapping.
"""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.core import Ints

_NEVER = np.iinfo(np.int64).min
_FITS = 2**62
_INEXACT = 2.0**-16
"""Larger than the rounding error of a sum of fractions, and smaller than any fraction."""


def covered_until(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Return, for each interval, the latest end of the intervals that started before it on its track.

    It is the smallest int64 for the first interval of a track. Of intervals that start together, the first in the input
    counts as earlier.
    """
    if len(start) < 2:
        return np.full(len(start), _NEVER, dtype=np.int64)
    if _are_in_order(start, track):
        return _covered_in_order(end, track)
    order = np.lexsort((start, track))
    until = np.empty(len(start), dtype=np.int64)
    until[order] = _covered_in_order(end[order], track[order])
    return until


def _are_in_order(start: Ints, track: npt.NDArray) -> bool:
    step = np.diff(track)
    return bool((step >= 0).all() and (np.diff(start)[step == 0] >= 0).all())


def _covered_in_order(end: Ints, track: npt.NDArray) -> Ints:
    is_first = np.diff(track, prepend=track[:1] - 1) != 0
    group = np.cumsum(is_first)
    group -= 1
    until = np.empty(len(end), dtype=np.int64)
    until[1:] = _running_max(end, group)[:-1]
    until[is_first] = _NEVER
    return until


def _running_max(values: Ints, group: Ints) -> Ints:
    """Return the running maximum within each group. Groups are contiguous and numbered from 0.

    An offset lifts each group above all values of the groups before it. If the offsets would overflow, the values'
    ranks are used instead.
    """
    low = int(values.min())
    height = int(values.max()) - low + 1
    if height * (int(group[-1]) + 1) < _FITS:
        lift = group * height
        lift -= low
        most = values + lift
        np.maximum.accumulate(most, out=most)
        most -= lift
        return most
    by_value = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[by_value] = np.arange(len(values))
    best = np.maximum.accumulate(group * len(values) + rank)
    return values[by_value[best - group * len(values)]]


def shared_ns(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Return each interval's share of the time, in ns, if overlapping intervals share it equally.

    While k intervals of a track are open, each of them gets 1/k of the time. The shares of a track are integers that
    sum exactly to the length of the union of its intervals. Each differs by less than 1 ns from the exact share, and is
    never longer than the interval.
    """
    share = end - start
    rows = np.flatnonzero(_overlapping(start, end, track))
    if rows.size:
        rows = rows[np.argsort(track[rows], kind="stable")]
        share[rows] = _split_equally(start[rows], end[rows], track[rows])
    return share


def _overlapping(start: Ints, end: Ints, track: npt.NDArray) -> npt.NDArray[np.bool_]:
    """Return which intervals belong to a group of two or more that overlap, directly or through others."""
    joins = covered_until(start, end, track) > start
    if not joins.any() or _are_in_order(start, track):
        return _are_joined(joins)
    order = np.lexsort((start, track))
    overlapping = np.empty(len(start), dtype=bool)
    overlapping[order] = _are_joined(joins[order])
    return overlapping


def _are_joined(joins: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return joins | np.append(joins[1:], False)


def _split_equally(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Return the shares of intervals that are ordered by track.

    The time between two neighbouring starts or ends is divided by the number of open intervals.
    The whole nanoseconds of each quotient are summed exactly. The remainders are summed as fractions, and the running
    total over the intervals is rounded down, which preserves the total of a track, an integer.
    """
    size = len(start)
    time = np.concatenate([start, end])
    order = np.lexsort((time, np.concatenate([track, track])))
    open_now = np.cumsum(np.where(order < size, 1, -1))
    stretch = np.where(open_now > 0, np.diff(time[order], append=0), 0)
    whole, rest = np.divmod(stretch, np.maximum(open_now, 1))
    position = np.empty(2 * size, dtype=np.int64)
    position[order] = np.arange(2 * size)
    first, last = position[:size], position[size:]
    before = np.cumsum(whole) - whole
    fraction = np.append(0.0, np.cumsum(rest / np.maximum(open_now, 1))[:-1])
    rounded = np.floor(np.cumsum(fraction[last] - fraction[first]) + _INEXACT).astype(np.int64)
    return before[last] - before[first] + np.diff(rounded, prepend=0)


def newly_covered_ns(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Return the time of each interval that no earlier interval of its track covers. It sums to `union_ns`."""
    return np.maximum(end - np.maximum(start, covered_until(start, end, track)), 0)


def idle_before_ns(start: Ints, end: Ints, track: npt.NDArray) -> Ints:
    """Return how long the track was idle just before each interval; 0 for the first of a track."""
    until = covered_until(start, end, track)
    return np.where(until == _NEVER, 0, np.maximum(start - np.where(until == _NEVER, start, until), 0))


def union_ns(start: Ints, end: Ints, track: npt.NDArray) -> int:
    """Return the length of the union of each track's intervals, summed over the tracks."""
    return int(newly_covered_ns(start, end, track).sum())


class Covered:
    """The time that any of the intervals covers. Starts and ends are int64 nanoseconds."""

    def __init__(self, start: Ints, end: Ints) -> None:
        order = np.argsort(start, kind="stable")
        start, latest = start[order], np.maximum.accumulate(end[order])
        first = np.flatnonzero(np.r_[True, start[1:] > latest[:-1]][: len(start)])
        self._start, self._end = start[first], latest[np.r_[first[1:] - 1, len(start) - 1][: len(first)]]
        self._before = np.r_[0, np.cumsum(self._end - self._start)]

    def spans(self) -> tuple[Ints, Ints]:
        """Return starts and ends of the union's parts, in order."""
        return self._start, self._end

    def outside(self, begin: int, end: int) -> "Covered":
        """Return the time from `begin` to `end` that is not covered."""
        return Covered(np.append(begin, self._end), np.append(self._start, end))

    def common(self, other: "Covered") -> "Covered":
        """Return the time that both cover."""
        edges = np.sort(np.concatenate([*self.spans(), *other.spans()]), kind="stable")  # merges four sorted runs
        begin, end = edges[:-1], edges[1:]
        both = (begin < end) & self.at(begin) & other.at(begin)
        return Covered(begin[both], end[both])

    def at(self, time: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each time is covered. Parts include their starts, but not their ends."""
        part = np.searchsorted(self._start, time, "right") - 1
        return (part >= 0) & (time < np.r_[self._end, 0][part])

    def within(self, begin: Ints, end: Ints) -> Ints:
        """Return the covered time of each span in ns."""
        return self.before(end) - self.before(begin)

    def before(self, time: Ints) -> Ints:
        """Return the covered time before each time in ns."""
        part = np.searchsorted(self._start, time, "right") - 1
        inside = np.minimum(time, np.r_[self._end, 0][part]) - np.r_[self._start, 0][part]
        return np.where(part >= 0, self._before[part] + inside, 0)
