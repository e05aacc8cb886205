"""Finds the steps of a run, by ranges that mark them, or else by repetition."""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.intervals import covered_until
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.nesting import BLOCK_ROWS, Nest, Rows
from tracekit.analyzers.attribute.origin import Origin
from tracekit.analyzers.attribute.recorded_ranges import USER_STEP, serving_phase
from tracekit.analyzers.attribute.repetition import Window, repeated
from tracekit.analyzers.core import Ints
from tracekit.analyzers.trace import ranges

_UNLIKE = 0.1
"""Largest relative difference in work between repetitions of a step."""
_MOST_KINDS = 8
"""Largest number of different repetitions in one step."""
_PART_OF_A_STEP = 0.5
"""A first or last step with less than this fraction of the others' work was cut off by the recording."""


class Steps(msgspec.Struct, frozen=True):
    """Spans of the steps on the host, in order, and the step of each work item."""

    start: Ints
    end: Ints
    of_item: Rows
    """Index of the step in which each item was issued; -1 for none."""
    set_apart: int = 0
    """Number of steps without work, or cut off by the recording, which are not among the spans."""

    def at(self, time: Ints) -> Rows:
        """Return the step that is open on the host at each time; -1 for none. Without spans, all times are in step
        0."""
        if not len(self.start):
            return np.zeros(len(time), dtype=np.int32)
        return _span_at(self.start, self.end, time)

    def overlap(self, host: pd.DataFrame, rows: Ints | Rows) -> npt.NDArray[np.bool_]:
        """Return which rows of the host overlap a step; all if no step contains work."""
        inside = np.ones(len(rows), dtype=bool)
        if not (self.of_item >= 0).any() or not len(self.start):
            return inside
        begin = np.append(self.start, np.iinfo(np.int64).max)
        for block in (slice(first, first + BLOCK_ROWS) for first in range(0, len(rows), BLOCK_ROWS)):
            start, end = _spans(host, rows[block])
            inside[block] = begin[np.searchsorted(self.end, start, side="right")] <= end
        return inside


class _Marks(msgspec.Struct, frozen=True):
    """Host rows of the ranges that mark steps, in order."""

    rows: Ints
    may_hold_several: bool = True
    """Whether a single range may contain a whole loop."""
    may_be_cut: bool = True
    """Whether the first and the last may be parts of steps. A batch of a serving engine is always a step."""


def find_steps(host: Host, items: WorkItems, origin: Origin) -> Steps:
    """Return the steps from tracekit's ranges, else ProfilerStep#N, else batches of a serving engine, else step_N
    ranges.

    Without any of these, steps are repetitions: iterations of training, batches of a DataLoader, calls of the model, or
    periods of kernels. A single range of a profiler or a user may contain many steps, so repetitions are searched
    inside it, too. A trace without repetitions has no spans, and all its work belongs to step 0.
    """
    marks = _marked(host)
    start, end = _spans(host.table, marks.rows)
    if len(marks.rows) < 2 and marks.may_hold_several:
        window = Window(int(start[0]), int(end[0])) if len(start) else None
        repetitions = _equal(*repeated(host, items, origin, window), origin.time_ns)
        start, end = repetitions or (start, end)
    if not len(start):
        return Steps(start, end, np.zeros(len(origin.time_ns), dtype=np.int32))
    of_item = _span_at(start, end, origin.time_ns)
    return _whole(start, end, of_item) if marks.may_be_cut else Steps(start, end, of_item)


def _marked(host: Host) -> _Marks:
    if (rows := host.ranges.rows_of(host.ranges.is_ours("step"))).size:
        return _Marks(_sorted_by_start(host, rows), may_hold_several=False)
    if (rows := host.ranges.rows_of(ranges.PROFILER_STEP.fullmatch)).size:
        return _Marks(_sorted_by_start(host, rows))
    if (rows := host.ranges.rows_of(serving_phase)).size:
        return _Marks(_sorted_by_start(host, _outermost(host, rows)), may_hold_several=False, may_be_cut=False)
    rows = host.ranges.rows_of(USER_STEP.fullmatch)
    return _Marks(_sorted_by_start(host, _outermost(host, rows)))


def _outermost(host: Host, rows: Ints) -> Ints:
    mask = np.zeros(len(host.start), dtype=bool)
    mask[rows] = True
    return rows[Nest(host.table, mask, by_time=True).parents[rows] < 0]


def _sorted_by_start(host: Host, rows: Ints) -> Ints:
    """Return the rows ordered by start.

    Ranks in one recording run the same steps at the same time. If steps of several threads overlap, only those of the
    thread with the most steps are returned.
    """
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    start, end = _spans(host.table, rows)
    if not (covered_until(start, end, np.zeros(len(rows), dtype=np.int64)) > start).any():
        return rows
    thread = host.thread[rows]
    return rows[thread == np.bincount(thread).argmax()]


def _spans(host: pd.DataFrame, rows: Ints | Rows) -> tuple[Ints, Ints]:
    start = host["start_ns"].to_numpy()[rows].astype(np.int64)
    return start, start + host["duration_ns"].to_numpy()[rows]


def _span_at(start: Ints, end: Ints, time: Ints) -> Rows:
    """Return the index of the span open at each time; -1 for none. A span includes its start, but not its end."""
    at = np.searchsorted(start, time, side="right") - 1
    inside = (at >= 0) & ((time < end[at]) | (time == start[at]))
    return np.where(inside, at, -1).astype(np.int32)


def _equal(start: Ints, end: Ints, time: Ints) -> tuple[Ints, Ints] | None:
    """Return the repetitions, joined in groups where several kinds alternate, such as the two updates of a GAN; None
    if their work differs.

    The first may also initialize, and the last may lack the work before the next one, so the others may decide alone.
    """
    if not len(start):
        return None
    of_item = _span_at(start, end, time)
    work = np.bincount(of_item[of_item >= 0], minlength=len(start))
    for count in range(1, _MOST_KINDS + 1):
        if _alternate(work, count) or _alternate(work[1:-1], count):
            return start[::count], np.append(start[count::count], end[-1])
    return None


def _alternate(work: Ints, count: int) -> bool:
    """Return whether repetitions of `count` kinds follow each other."""
    return all(_alike(work[kind::count]) for kind in range(count))


def _alike(work: Ints) -> bool:
    """Return whether most of several repetitions have about the same number of work items."""
    if len(work) < 2:
        return False
    usual = np.median(work)
    return bool(2 * np.count_nonzero(abs(work - usual) <= _UNLIKE * usual) > len(work) and usual)


def _whole(start: Ints, end: Ints, of_item: Rows) -> Steps:
    """Return the steps without empty ones, and without a first or last one that the recording cut off."""
    work = np.bincount(of_item[of_item >= 0], minlength=len(start))
    keep = work > 0
    if not keep.any():
        return Steps(start, end, of_item)
    for edge in (np.flatnonzero(keep)[-1], np.flatnonzero(keep)[0]):
        others = work[keep & (np.arange(len(work)) != edge)]
        keep[edge] = not len(others) or work[edge] >= _PART_OF_A_STEP * np.median(others)
    number = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1).astype(np.int32)
    return Steps(start[keep], end[keep], number[of_item], int((~keep).sum()))
