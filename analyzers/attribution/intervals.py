"""Time that intervals cover, counted once. Starts and ends are int64 nanoseconds, one pair an interval."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min


def covered_until(start: Ints, end: Ints, track: Ints) -> Ints:
    """Per interval, the latest end among those that started before it on its track; the smallest int64 for the first.

    Of intervals that start together, the one that comes first in the input counts as earlier.
    """
    order = np.lexsort((start, track))
    tracks = track[order]
    is_first = np.diff(tracks, prepend=tracks[:1] - 1) != 0
    until = np.full(len(start), _NEVER, dtype=np.int64)
    latest = _running_max(end[order], np.cumsum(is_first) - 1)
    until[order[1:]] = np.where(is_first[1:], _NEVER, latest[:-1])
    return until


def _running_max(values: Ints, group: Ints) -> Ints:
    """Running maximum that starts anew in each group; groups are numbered from 0 and contiguous.

    Ranks instead of values: group and rank fit one integer, so that a later group always wins.
    """
    by_value = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[by_value] = np.arange(len(values))
    best = np.maximum.accumulate(group * len(values) + rank)
    return values[by_value[best - group * len(values)]]


def newly_covered_ns(start: Ints, end: Ints, track: Ints) -> Ints:
    """Per interval, the part that no earlier-starting interval of its track covers; sums to `union_ns`."""
    return np.maximum(end - np.maximum(start, covered_until(start, end, track)), 0)


def idle_before_ns(start: Ints, end: Ints, track: Ints) -> Ints:
    """Per interval, how long its track was idle just before it; 0 for the first of a track."""
    until = covered_until(start, end, track)
    return np.where(until == _NEVER, 0, np.maximum(start - np.where(until == _NEVER, start, until), 0))


def union_ns(start: Ints, end: Ints) -> int:
    """Length of the union of the intervals."""
    return int(newly_covered_ns(start, end, np.zeros(len(start), dtype=np.int64)).sum())
