"""Lists what the host did in the steps, and projects its ranges on the device, as `nsys stats` projects NVTX: when did
the work launched inside a range run?

Work belongs to every range on the launching thread that contains its launching call.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.kernel_names import one_of
from tracekit.analyzers.attribute.nesting import Rows, containers
from tracekit.analyzers.core import Ints
from tracekit.analyzers.results import HOST_SPANS, PROJECTIONS, RANGES

LIMIT, OTHERS = 4_000, 1_000
"""Maximum number of spans of the step of median length, and of each other step. The longest are kept."""
MOST_STEPS = 8
_THREADS = 4


def median_step(steps: pd.DataFrame) -> int:
    """Return the row of the step of median length; -1 without steps."""
    return int(np.argsort(steps["wall_ns"].to_numpy(), kind="stable")[len(steps) // 2]) if len(steps) else -1


def shown_steps(steps: pd.DataFrame) -> Ints:
    """Return the rows of the steps that a timeline shows, by time: that of median length, the shortest, the longest."""
    order = np.argsort(steps["wall_ns"].to_numpy(), kind="stable")
    kept = dict.fromkeys([median_step(steps), *order[:1].tolist(), *order[::-1].tolist()]) if len(steps) else {}
    return np.sort(np.array([*kept][:MOST_STEPS], dtype=np.int64))


def host_spans_table(host: Host, steps: pd.DataFrame) -> pd.DataFrame:
    """Return HOST_SPANS of the busiest threads, ordered by start."""
    shown = shown_steps(steps)
    if not len(shown):
        return HOST_SPANS.empty()
    rows, step = _rows_in_steps(host, steps.iloc[shown])
    duration, thread = host.duration[rows], _by_time(host, rows)
    kept = np.flatnonzero(thread < _THREADS)
    limit = np.where(shown == median_step(steps), LIMIT, OTHERS)
    kept = np.sort(kept[_longest(duration[kept], step[kept], limit)])
    longest = host.table.iloc[rows[kept]]
    return HOST_SPANS.frame(
        {
            "step": steps["step"].to_numpy()[shown[step[kept]]],
            "start_ns": longest["start_ns"].to_numpy(),
            "duration_ns": duration[kept],
            "thread": thread[kept].astype(np.int32),
            "kind": pd.Categorical(_kinds(host, rows[kept]), categories=["op", "launch", "sync", "call"]),
            "name": longest["name"].cat.remove_unused_categories().array,
        }
    )


def _rows_in_steps(host: Host, steps: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the outermost ops and the runtime's calls that start inside one of the steps, by start, and the position
    of the step of each."""
    rows = np.concatenate([host.ops.rows[host.ops.parent < 0], np.flatnonzero(host.is_runtime)])
    start = host.start[rows]
    rows, start = rows[order := np.argsort(start, kind="stable")], start[order]
    begin = steps["start_ns"].to_numpy()
    step = np.searchsorted(begin, start, side="right") - 1
    inside = (step >= 0) & (start < (begin + steps["wall_ns"].to_numpy())[step])
    return rows[inside], step[inside]


def _longest(duration: npt.NDArray[np.integer], step: Ints, limit: Ints) -> Ints:
    """Return the rows of the longest durations of each step, as many as its limit."""
    order = np.lexsort((-duration, step))
    position = np.arange(len(order)) - np.searchsorted(step[order], step[order])
    return order[position < limit[step[order]]]


def _by_time(host: Host, rows: Ints) -> Ints:
    """Return the rank of each row's thread, by descending time."""
    number, thread = np.unique(host.thread[rows], return_inverse=True)
    total = np.bincount(thread, weights=host.duration[rows], minlength=len(number))
    rank = np.empty(len(number), dtype=np.int64)
    rank[np.argsort(-total, kind="stable")] = np.arange(len(number))
    return rank[thread]


def _kinds(host: Host, rows: Ints) -> npt.NDArray[np.object_]:
    tests = [host.is_op[rows], host.waits[rows], host.launches[rows]]
    return np.select(tests, ["op", "sync", "launch"], default="call").astype(object)


RANGES_ONLY = ("range", "module")
WITH_OPS = (*RANGES_ONLY, "op")
_TIMES = ("thread", "start_ns", "duration_ns")
_NEVER = np.iinfo(np.int64).max


class _Spans(msgspec.Struct, frozen=True):
    """Rows of the host table, ordered by thread, start, and descending duration."""

    row: Ints
    thread: Ints
    start: Ints
    end: Ints

    def __getitem__(self, which: npt.NDArray) -> "_Spans":
        return _Spans(self.row[which], self.thread[which], self.start[which], self.end[which])


class _OnDevice(msgspec.Struct, frozen=True):
    """Start, end and number of work items of each call."""

    start: Ints
    end: Ints
    items: Ints


def project(host: pd.DataFrame, work: pd.DataFrame, categories: tuple[str, ...] = WITH_OPS) -> pd.DataFrame:
    """Return the table PROJECTIONS for the HOST rows of the categories.

    Reads launch, start_ns and duration_ns of `work`.
    """
    known = work[work["launch"] >= 0]
    calls = _spans(host, _marked(known["launch"].to_numpy(), len(host)))
    spans = _spans(host, np.flatnonzero(one_of(host["category"], categories)))
    first, stop = _calls_within(spans, calls)
    holds = stop > first
    spans, first, stop = spans[holds], first[holds], stop[holds]
    ran = _device_spans(calls, known)
    start, end = _reduce_slices(np.minimum, ran.start, first, stop), _reduce_slices(np.maximum, ran.end, first, stop)
    items = np.append(0, np.cumsum(ran.items))
    parent = containers(spans.thread, spans.end)
    return PROJECTIONS.frame(
        {
            "row": spans.row,
            "start_ns": start,
            "duration_ns": end - start,
            "items": items[stop] - items[first],
            "level": _levels(parent),
            "children": np.bincount(parent[parent >= 0], minlength=len(parent)),
        }
    )


def ranges_table(host: pd.DataFrame, projections: pd.DataFrame) -> pd.DataFrame:
    """Return the table RANGES: projections summed by category and name, longest first."""
    if projections.empty:
        return RANGES.empty()
    row = projections["row"].to_numpy()
    category, name = host["category"].array, host["name"].array
    group, keys = pd.factorize(category.codes[row].astype(np.int64) * len(name.categories) + name.codes[row])
    order, calls = np.argsort(group, kind="stable"), np.bincount(group)
    first = np.cumsum(calls) - calls
    ran, items, level, children = (
        projections[each].to_numpy()[order] for each in ("duration_ns", "items", "level", "children")
    )
    projected = np.add.reduceat(ran, first)
    columns = {
        "category": category.categories.to_numpy()[keys // len(name.categories)],
        "name": name.categories.to_numpy()[keys % len(name.categories)],
        "calls": calls,
        "cpu_ns": np.add.reduceat(host["duration_ns"].to_numpy()[row[order]].astype(np.int64), first),
        "projected_ns": projected,
        "mean_ns": projected / calls,
        "min_ns": np.minimum.reduceat(ran, first),
        "max_ns": np.maximum.reduceat(ran, first),
        "kernels": np.add.reduceat(items, first),
        "level": np.add.reduceat(level, first) / calls,
        "children": np.add.reduceat(children, first) / calls,
    }
    longest = np.argsort(-projected, kind="stable")
    return RANGES.frame({each: values[longest] for each, values in columns.items()})


def _spans(host: pd.DataFrame, row: Ints) -> _Spans:
    """Return the spans of ascending rows; HOST has the order of _Spans."""
    thread, start, duration = (host[name].to_numpy()[row].astype(np.int64) for name in _TIMES)
    return _Spans(row, thread, start, start + duration)


def _marked(rows: Ints, size: int) -> Ints:
    """Return the distinct rows in ascending order."""
    mask = np.zeros(size, dtype=bool)
    mask[rows] = True
    return np.flatnonzero(mask)


def _device_spans(calls: _Spans, work: pd.DataFrame) -> _OnDevice:
    call = np.searchsorted(calls.row, work["launch"].to_numpy())
    start, end = np.full(len(calls.row), _NEVER), np.full(len(calls.row), -_NEVER)
    np.minimum.at(start, call, work["start_ns"].to_numpy())
    np.maximum.at(end, call, (work["start_ns"] + work["duration_ns"]).to_numpy())
    return _OnDevice(start, end, np.bincount(call, minlength=len(calls.row)))


def _calls_within(spans: _Spans, calls: _Spans) -> tuple[Ints, Ints]:
    """Return, for each span, the first call that it contains, and the one after the last.

    The calls of a thread are ordered by start, so those inside a span are contiguous. A call nested in another counts
    as ending with it.
    """
    first, stop = np.zeros(len(spans.row), dtype=np.int64), np.zeros(len(spans.row), dtype=np.int64)
    for thread in np.unique(calls.thread).tolist():
        of_thread = slice(*np.searchsorted(spans.thread, [thread, thread + 1]))
        begin, end = np.searchsorted(calls.thread, [thread, thread + 1])
        ends = np.maximum.accumulate(calls.end[begin:end])
        first[of_thread] = begin + np.searchsorted(calls.start[begin:end], spans.start[of_thread], side="left")
        stop[of_thread] = begin + np.searchsorted(ends, spans.end[of_thread], side="right")
    return first, stop


def _reduce_slices(ufunc: np.ufunc, values: Ints, first: Ints, stop: Ints) -> Ints:
    """Return the ufunc reduced over each values[first:stop]; no slice may be empty."""
    if not len(first):
        return first
    return ufunc.reduceat(np.append(values, 0), np.column_stack([first, stop]).ravel())[::2]


def _levels(parent: Rows) -> Ints:
    level, above = np.zeros(len(parent), dtype=np.int64), parent
    while (above >= 0).any():
        level += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return level
