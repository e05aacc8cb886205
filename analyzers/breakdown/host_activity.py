"""What the host did in given windows of time: which cause, and which of its rows, had how much of each window."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.items import innermost_segments
from tracekit.analyzers.attribution.kernel_names import is_copy_to_host
from tracekit.analyzers.attribution.nesting import Nest, Rows
from tracekit.analyzers.breakdown.covered import Covered
from tracekit.analyzers.breakdown.host_kinds import COMPUTING, is_framework, is_module, kinds

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONG_STRETCH_NS = 500_000
"""Between two ops the host takes tens of microseconds for Python and modules. From here, that is no dispatching."""
LONG_COMPUTING_NS = 100_000
"""An op on the host that takes this long by itself computes."""
_PART_OF_LAUNCHES = 0.01
"""A thread that launches less of the work than this is none of those that set the pace."""


@dataclass(frozen=True, eq=False)
class Launching:
    """The threads that launch work, and when they launch and call modules, in order of time."""

    threads: npt.NDArray[np.integer]
    launches: Ints
    modules: Ints
    to_host: Bools
    """Per host row, whether it launched a copy to the host."""


def launching(host: pd.DataFrame, work: pd.DataFrame) -> Launching:
    """Those of this work, rows of WORK."""
    known = (work["launch"] >= 0).to_numpy()
    rows = work["launch"].to_numpy()[known]
    thread, start = host["thread"].to_numpy(), host["start_ns"].to_numpy()
    numbers, counts = np.unique(thread[rows], return_counts=True)
    threads = numbers[counts >= _PART_OF_LAUNCHES * counts.sum()]
    modules = np.flatnonzero(is_module(host) & np.isin(thread, threads))
    to_host = np.zeros(len(host), dtype=bool)
    to_host[rows[is_copy_to_host(work["name"])[known]]] = True
    return Launching(threads, np.sort(start[rows]), np.sort(start[modules]), to_host)


def host_activity(host: pd.DataFrame, by: Launching, begin: Ints, end: Ints) -> pd.DataFrame:
    """Columns window, cause, row (of the host table; -1: none) and duration_ns, for windows that do not overlap and
    are in order. The durations of a window sum to its length."""
    rows = _rows_within(host, by, begin, end)
    part = host.iloc[rows].reset_index(drop=True)
    nest = Nest(part, np.ones(len(part), dtype=bool), by_time=len(by.threads) > 1)
    start, stop, owner = innermost_segments(part, nest)
    piece, window = _pairs(start, stop, begin, end)
    length = np.minimum(stop[piece], end[window]) - np.maximum(start[piece], begin[window])
    owner = owner[piece]
    kind, category = kinds(part, nest, by.to_host[rows], by.launches, by.modules), _categories(part)
    bare_window, bare_length = _uncovered(part, nest.rows[nest.parent < 0], begin, end)
    bare = np.where(bare_length < LONG_STRETCH_NS, "dispatch", "unexplained")
    return _summed(
        begin,
        end,
        window=np.concatenate([window, bare_window]),
        cause=np.concatenate([_of_stretches(kind[owner], category[owner], length), bare.astype(object)]),
        row=np.concatenate([rows[owner], np.full(len(bare), -1)]),
        ns=np.concatenate([length, bare_length]),
    )


def _categories(part: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Ranges and frames of the framework are called so: what they do without an op is dispatching, however long."""
    return np.where(is_framework(part), "framework", part["category"].astype(object)).astype(object)


def _rows_within(host: pd.DataFrame, by: Launching, begin: Ints, end: Ints) -> Ints:
    start = host["start_ns"].to_numpy().astype(np.int64)
    stop = start + host["duration_ns"].to_numpy()
    first = np.searchsorted(end, start, "right")
    touches = (first < len(begin)) & (np.append(begin, 0)[first] < stop)
    return np.flatnonzero(touches & np.isin(host["thread"].to_numpy(), by.threads))


def _of_stretches(
    kind: npt.NDArray[np.object_], category: npt.NDArray[np.object_], length: Ints
) -> npt.NDArray[np.object_]:
    """The cause of stretches in which rows of that kind were innermost."""
    long = (kind == "dispatch") & (length >= LONG_STRETCH_NS)
    computed = (kind == COMPUTING) & (length >= LONG_COMPUTING_NS)
    tests = {
        "python": long & np.isin(category, ["python", "module"]),
        "unexplained": long & (category == "range"),
        "preprocessing": computed,
        "dispatch": kind == COMPUTING,
    }
    return np.select(list(tests.values()), list(tests), kind).astype(object)


def _uncovered(part: pd.DataFrame, roots: Rows, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Stretches of the windows in which no row is open: their window and length."""
    start = part["start_ns"].to_numpy()[roots].astype(np.int64)
    first, last = Covered(start, start + part["duration_ns"].to_numpy()[roots]).spans()
    left = np.concatenate([[np.iinfo(np.int64).min], last])
    right = np.concatenate([first, [np.iinfo(np.int64).max]])
    of, window = _pairs(left, right, begin, end)
    return window, np.minimum(right[of], end[window]) - np.maximum(left[of], begin[window])


def _summed(begin: Ints, end: Ints, **columns: npt.NDArray) -> pd.DataFrame:
    """By window, cause and row. Rows of several threads may overlap: each then has its share of the window."""
    pieces = pd.DataFrame(columns)
    sums = pieces[pieces["ns"] > 0].groupby(["window", "cause", "row"], sort=False)["ns"].sum().reset_index()
    total = sums.groupby("window")["ns"].transform("sum").to_numpy()
    span = (end - begin)[sums["window"].to_numpy(dtype=np.int64)]
    return sums.assign(duration_ns=sums["ns"] * (span / np.maximum(total, 1))).drop(columns="ns")


def _pairs(start: Ints, stop: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Which pieces, in any order, meet which windows, in order and apart: (piece, window)."""
    first, after = np.searchsorted(end, start, "right"), np.searchsorted(begin, stop, "left")
    count = np.maximum(after - first, 0)
    piece = np.repeat(np.arange(len(start)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return piece, first[piece] + offset
