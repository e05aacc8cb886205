"""The union of intervals, with vectorized queries."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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

    def common(self, other: "Covered") -> "Covered":
        """Return the time that both cover."""
        edges = np.unique(np.concatenate([*self.spans(), *other.spans()]))
        begin, end = edges[:-1], edges[1:]
        both = self.at(begin) & other.at(begin)
        return Covered(begin[both], end[both])

    def at(self, time: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each time is covered. Parts include their starts, but not their ends."""
        part = np.searchsorted(self._start, time, "right") - 1
        return (part >= 0) & (time < np.r_[self._end, 0][part])

    def within(self, begin: Ints, end: Ints) -> Ints:
        """Return the covered time of each span in ns."""
        return self._until(end) - self._until(begin)

    def _until(self, time: Ints) -> Ints:
        part = np.searchsorted(self._start, time, "right") - 1
        inside = np.minimum(time, np.r_[self._end, 0][part]) - np.r_[self._start, 0][part]
        return np.where(part >= 0, self._before[part] + inside, 0)
