"""Ranges nested on threads: the parent of each, and the innermost one open at a moment."""

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Nest:
    """The host rows of `mask` as a forest.

    Row numbers in and out are those of the host table; -1 is none. With `by_time` all threads are one track, so that a
    range encloses what happens on any thread while it is open.
    """

    def __init__(self, host: pd.DataFrame, mask: Bools, by_time: bool = False) -> None:
        rows = np.flatnonzero(mask)
        start, duration = host["start_ns"].to_numpy(), host["duration_ns"].to_numpy()
        if by_time:
            rows = rows[np.lexsort((-duration[rows], start[rows]))]
        self.rows: Ints = rows
        """Host rows, ordered by track, start, and longest first, as the host table is on each thread."""
        self._track: npt.NDArray = np.zeros(len(rows), dtype=np.int32) if by_time else host["thread"].to_numpy()[rows]
        self._start, self._end = start[rows], start[rows] + duration[rows]
        self._parent = containers(self._track, self._end)
        self._size = len(host)

    def parents(self) -> Ints:
        """Per host row, the host row of the tightest range of this nest that contains it; -1 outside the nest too."""
        parents = np.full(self._size, -1, dtype=np.int64)
        parents[self.rows] = take(self.rows, self._parent)
        return parents

    def around(self, track: Ints, time: Ints) -> Ints:
        """The host row of the innermost range open at each moment on each track (its start counts as open)."""
        at = self._last_started(track, time)
        while (closed := np.flatnonzero((at >= 0) & (take(self._end, at) <= time) & ~self._starts_at(at, time))).size:
            at[closed] = self._parent[at[closed]]
        return take(self.rows, at)

    def _starts_at(self, at: Ints, time: Ints) -> Bools:
        return take(self._start, at) == time

    def _last_started(self, track: Ints, time: Ints) -> Ints:
        """Position of the last range that started on the track by then."""
        tracks, times = np.concatenate([self._track, track]), np.concatenate([self._start, time])
        asks = np.repeat([False, True], [len(self._track), len(track)])
        order = np.lexsort((asks, times, tracks))
        last = np.empty(len(asks), dtype=np.int64)
        last[order] = np.cumsum(~asks[order]) - 1
        found = last[asks]
        return np.where(take(self._track, found, absent=-2) == track, found, -1)


def containers(track: npt.NDArray, end: Ints) -> Ints:
    """Per range, the position of the tightest range that contains it; -1: none.

    Ranges are ordered by track, start, and longest first, so the container is the nearest earlier range of the track
    that ends no earlier. Candidates are skipped by pointer doubling: what lies between a candidate's own candidate and
    the candidate ends before it.
    """
    candidate = np.arange(-1, len(end) - 1, dtype=np.int64)
    candidate[np.flatnonzero(np.diff(track, prepend=track[:1] - 1))] = -1
    active = np.flatnonzero(candidate >= 0)
    while active.size:
        active = active[end[candidate[active]] < end[active]]
        candidate[active] = candidate[candidate[active]]
        active = active[candidate[active] >= 0]
    return candidate


def nearest(parent: Ints, mask: Bools) -> Ints:
    """Per row, the nearest of itself and its ancestors that is in `mask`; -1: none."""
    hop = np.where(mask, np.arange(len(parent)), parent)
    pending = np.flatnonzero((hop >= 0) & ~take(mask, hop))
    while pending.size:
        hop[pending] = hop[hop[pending]]
        pending = pending[(hop[pending] >= 0) & ~take(mask, hop[pending])]
    return hop


def take(values: npt.NDArray, rows: Ints, absent: object = -1) -> npt.NDArray:
    """`values[rows]`, with `absent` where the row is -1."""
    if not len(values):
        return np.full(len(rows), absent, dtype=values.dtype)
    return np.where(rows >= 0, values[rows], np.asarray(absent).astype(values.dtype))
