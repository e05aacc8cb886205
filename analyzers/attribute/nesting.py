"""Nests ranges on threads: finds the parent of each, and the innermost range open at a time."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.intervals import covered_until
from tracekit.analyzers.core import Bools, Ints

BLOCK_ROWS = 1 << 16
"""Rows of a large table that are worked on at once: all of them take more memory than the table."""
Rows = npt.NDArray[np.int32]
"""Row numbers. No table that fits in memory has 2**31 rows."""


class Nest:
    """The host rows of `mask` as a forest.

    Arguments and results are row numbers of the host table, with -1 for none. With `by_time`, all threads are one
    track, so a range encloses everything that happens on any thread while it is open. A range may end `slack_ns` after
    the range that contains it.
    """

    def __init__(self, host: pd.DataFrame, mask: Bools, by_time: bool = False, slack_ns: int = 0) -> None:
        rows = row_numbers(mask)
        self._start_of, self._duration_of = host["start_ns"].to_numpy(), host["duration_ns"].to_numpy()
        if by_time:
            rows = rows[np.lexsort((-self._duration_of[rows], self._start_of[rows]))]
        self.rows: Rows = rows
        """Host rows, ordered by track, start, and descending duration, as the host table is on each thread."""
        self._track: npt.NDArray = np.zeros(len(rows), dtype=np.int8) if by_time else host["thread"].to_numpy()[rows]
        start = self._start_of[rows]
        self.parent: Rows = containers(self._track, start + self._duration_of[rows], start, slack_ns)
        """Position in the nest of the shortest range that contains each row of the nest; -1 for none."""

    @cached_property
    def parents(self) -> Rows:
        """For each host row, the row of the shortest range of this nest that contains it.

        It is -1 for none, and for rows outside the nest.
        """
        parents = np.full(len(self._start_of), -1, dtype=np.int32)
        parents[self.rows] = take(self.rows, self.parent)
        return parents

    def around(self, track: npt.NDArray, time: Ints) -> Rows:
        """Return the host row of the innermost range open at each time on each track. A range is open at its start."""
        at = self._last_started(track, time)
        pending = np.flatnonzero(at >= 0)
        while (pending := pending[self._is_over(at[pending], time[pending])]).size:
            at[pending] = self.parent[at[pending]]
            pending = pending[at[pending] >= 0]
        return take(self.rows, at)

    def innermost(self, chosen: Bools, rows: Rows) -> Rows:
        """Return, for each row of the nest (or -1), the innermost of the chosen ones among it and those around it.

        `chosen` has one entry per row of the nest.
        """
        return take(self.rows, take(nearest(self.parent, chosen), self.positions(rows)))

    def positions(self, rows: Rows) -> Rows:
        """Return the positions in the nest of rows of it, or -1."""
        return np.where(rows >= 0, np.searchsorted(self.rows, rows).astype(np.int32), np.int32(-1))

    def _is_over(self, at: Rows, time: Ints) -> Bools:
        start = self._start_of[self.rows[at]]
        return (start + self._duration_of[self.rows[at]] <= time) & (start != time)

    def _last_started(self, track: npt.NDArray, time: Ints) -> Rows:
        """Return the position of the last range that started on each track at or before each time; -1 for none."""
        position = np.full(len(track), -1, dtype=np.int32)
        if not len(track):
            return position
        order = np.argsort(track, kind="stable")
        tracks, first = np.unique(track[order], return_index=True)
        for number, queries in zip(tracks.tolist(), np.split(order, first[1:]), strict=True):
            low, high = np.searchsorted(self._track, [number, number + 1])
            at = np.searchsorted(self._start_of[self.rows[low:high]], time[queries], side="right") - 1
            position[queries] = np.where(at >= 0, at + low, -1)
        return position


def containers(track: npt.NDArray, end: Ints, start: Ints | None = None, slack_ns: int = 0) -> Rows:
    """Return the position of the shortest range that contains each range; -1 for none.

    With `slack_ns`, which needs `start`, a range that is open at the start of another contains it if it ends at most
    that much earlier.

    Ranges are ordered by track, start, and descending duration, so the container is the nearest earlier range of the
    track that does not end before it. Candidates are skipped by pointer doubling: every range between a candidate and
    the candidate's own candidate ends before the candidate.
    """
    candidate = np.arange(-1, len(end) - 1, dtype=np.int32)
    follows = track[1:] == track[:-1]
    candidate[1:][~follows] = -1
    until = end if start is None or not slack_ns else np.maximum(end - slack_ns, np.minimum(start + 1, end))
    active = row_numbers(follows & (end[:-1] < until[1:])) + 1
    while active.size:
        candidate[active] = candidate[candidate[active]]
        active = active[candidate[active] >= 0]
        active = active[end[candidate[active]] < until[active]]
    return candidate


def nearest(parent: Rows, mask: Bools) -> Rows:
    """Return, for each row, the nearest of itself and its ancestors that is in `mask`; -1 for none."""
    hop = np.where(mask, np.arange(len(parent), dtype=np.int32), parent)
    pending = np.flatnonzero((hop >= 0) & ~take(mask, hop))
    while pending.size:
        hop[pending] = hop[hop[pending]]
        pending = pending[(hop[pending] >= 0) & ~take(mask, hop[pending])]
    return hop


def any_above(parent: Rows, *masks: Bools) -> list[Bools]:
    """Return, for each of at most eight masks, which rows are in it or have an ancestor in it."""
    bits = np.zeros(len(parent), dtype=np.uint8)
    for bit, mask in enumerate(masks):
        bits |= mask.astype(np.uint8) << bit
    hop = parent.copy()
    pending = np.flatnonzero(hop >= 0)
    while pending.size:
        above = hop[pending]
        bits[pending] |= bits[above]
        hop[pending] = hop[above]
        pending = pending[hop[pending] >= 0]
    return [(bits >> bit & 1).astype(bool) for bit in range(len(masks))]


def row_numbers(mask: Bools) -> Rows:
    """Return the row numbers at which the mask is set."""
    return np.flatnonzero(mask).astype(np.int32)


def in_blocks(mask: Bools) -> Iterator[Ints]:
    """Yield the row numbers at which the mask is set, in blocks, of which there is at least one."""
    for first in range(0, max(len(mask), 1), BLOCK_ROWS):
        yield np.flatnonzero(mask[first : first + BLOCK_ROWS]) + first


def take(values: npt.NDArray, rows: npt.NDArray, absent: object = -1) -> npt.NDArray:
    """Return `values[rows]`, with `absent` where the row is -1."""
    if not len(values):
        return np.full(len(rows), absent, dtype=values.dtype)
    return np.where(rows >= 0, values[rows], np.asarray(absent).astype(values.dtype))


def outermost(host: pd.DataFrame, ops: Ints, start: int, stop: int) -> Ints:
    """Return the outermost op on the same thread that contains each op (a row of `host`), or the op itself; -1 for -1.
    All ops begin between `start` and `stop`."""
    times = host["start_ns"].to_numpy()
    rows = np.flatnonzero((times >= start) & (times <= stop) & (host["category"] == "op").to_numpy())
    if not len(rows):
        return ops
    begin, thread = times[rows].astype(np.int64), host["thread"].to_numpy()[rows]
    end = begin + host["duration_ns"].to_numpy()[rows]
    roots = rows[covered_until(begin, end, thread) <= begin]
    tracks = np.unique(thread)
    places = _places(host, roots, tracks, start, stop)
    order = np.argsort(places, kind="stable")
    at = np.searchsorted(places[order], _places(host, np.maximum(ops, 0), tracks, start, stop), side="right") - 1
    known = (ops >= 0) & (at >= 0)
    return np.where(known, roots[order][at], ops)


def _places(host: pd.DataFrame, rows: npt.NDArray[np.integer], tracks: npt.NDArray, start: int, stop: int) -> Ints:
    """Return one number per row that sorts by thread, then by time."""
    track = np.searchsorted(tracks, host["thread"].to_numpy()[rows])
    since = host["start_ns"].to_numpy()[rows].astype(np.int64) - start
    return track * (stop - start + 1) + np.clip(since, 0, stop - start)
