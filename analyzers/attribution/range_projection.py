"""Host ranges projected on the device: when the work ran that was launched inside them, as `nsys stats` projects NVTX.

A piece of work belongs to every range on the launching thread that contains its launching call.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.attribution.nesting import containers, take
from analyzers.result_tables import PROJECTIONS, RANGES

Ints = npt.NDArray[np.int64]

_PROJECTED = ("range", "op", "module")
_TIMES = ("thread", "start_ns", "duration_ns")
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Spans:
    """Rows of the host table, ordered by thread, start, and longest first."""

    row: Ints
    thread: Ints
    start: Ints
    end: Ints

    def __getitem__(self, which: npt.NDArray) -> "_Spans":
        return _Spans(self.row[which], self.thread[which], self.start[which], self.end[which])


@dataclass(frozen=True)
class _OnDevice:
    """Of each call: when its work began and ended, and how much it is."""

    start: Ints
    end: Ints
    items: Ints


def project(host: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The table PROJECTIONS of HOST and WORK (of which launch, start_ns and duration_ns are used)."""
    known = work[work["launch"] >= 0]
    calls = _spans(host, np.unique(known["launch"].to_numpy()))
    spans = _spans(host, np.flatnonzero(host["category"].isin(_PROJECTED)))
    first, stop = _calls_within(spans, calls)
    holds = stop > first
    spans, first, stop = spans[holds], first[holds], stop[holds]
    ran = _on_device(calls, known)
    start, end = _over(np.minimum, ran.start, first, stop), _over(np.maximum, ran.end, first, stop)
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
    """The table RANGES: projections summed by category and name, the longest first."""
    of = host.iloc[projections["row"].to_numpy()]
    named = projections.assign(
        category=of["category"].astype(object).to_numpy(),
        name=of["name"].astype(object).to_numpy(),
        cpu_ns=of["duration_ns"].to_numpy(),
    )
    summed = named.groupby(["category", "name"], sort=False).agg(
        calls=("items", "size"),
        cpu_ns=("cpu_ns", "sum"),
        projected_ns=("duration_ns", "sum"),
        mean_ns=("duration_ns", "mean"),
        min_ns=("duration_ns", "min"),
        max_ns=("duration_ns", "max"),
        kernels=("items", "sum"),
        level=("level", "mean"),
        children=("children", "mean"),
    )
    table = summed.reset_index().sort_values("projected_ns", ascending=False, kind="stable")
    return RANGES.frame({column.name: table[column.name].to_numpy() for column in RANGES.columns})


def _spans(host: pd.DataFrame, row: Ints) -> _Spans:
    thread, start, duration = (host[name].to_numpy()[row].astype(np.int64) for name in _TIMES)
    return _Spans(row, thread, start, start + duration)[np.lexsort((-duration, start, thread))]


def _on_device(calls: _Spans, work: pd.DataFrame) -> _OnDevice:
    place = np.argsort(calls.row)
    call = place[np.searchsorted(calls.row[place], work["launch"].to_numpy())]
    start, end = np.full(len(calls.row), _NEVER), np.full(len(calls.row), -_NEVER)
    np.minimum.at(start, call, work["start_ns"].to_numpy())
    np.maximum.at(end, call, (work["start_ns"] + work["duration_ns"]).to_numpy())
    return _OnDevice(start, end, np.bincount(call, minlength=len(calls.row)))


def _calls_within(spans: _Spans, calls: _Spans) -> tuple[Ints, Ints]:
    """Per span, the first of the calls that it contains, and the one behind the last.

    Calls of a thread follow each other, so those inside a span do, too. One call inside another counts as ending with
    it: nothing is between them.
    """
    times = np.unique(np.concatenate([spans.start, spans.end, calls.start, calls.end]))
    ends = pd.Series(calls.end).groupby(calls.thread).cummax().to_numpy(dtype=np.int64)

    def key(thread: Ints, time: Ints) -> Ints:
        return thread * len(times) + np.searchsorted(times, time)

    first = np.searchsorted(key(calls.thread, calls.start), key(spans.thread, spans.start), side="left")
    stop = np.searchsorted(key(calls.thread, ends), key(spans.thread, spans.end), side="right")
    return first, stop


def _over(ufunc: np.ufunc, values: Ints, first: Ints, stop: Ints) -> Ints:
    """The ufunc reduced over values[first:stop]; no such slice is empty."""
    if not len(first):
        return first
    return ufunc.reduceat(np.append(values, 0), np.column_stack([first, stop]).ravel())[::2]


def _levels(parent: Ints) -> Ints:
    level, above = np.zeros(len(parent), dtype=np.int64), parent
    while (above >= 0).any():
        level += above >= 0
        above = take(parent, above)
    return level
