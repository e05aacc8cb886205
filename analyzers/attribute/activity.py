"""Divides windows of time among what the host did in them: by cause, and by host row."""

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.host_kinds import (
    CODE,
    COMPUTING,
    Codes,
    categorical,
    first_true,
    is_any,
    is_framework,
    is_library_op,
    kinds,
    sums_by,
)
from tracekit.analyzers.attribute.intervals import Covered
from tracekit.analyzers.attribute.items import innermost_segments
from tracekit.analyzers.attribute.kernel_names import is_copy_to_host, one_of
from tracekit.analyzers.attribute.nesting import Nest, Rows
from tracekit.analyzers.core import Bools, Ints

LONG_STRETCH_NS = 500_000
"""Between two ops, the host takes tens of microseconds for Python and modules. A stretch of at least this length, in
ns, is not dispatch."""
LONG_COMPUTING_NS = 100_000
"""An op on the host computes if its self time is at least this, in ns."""
LOOP_NS, _LOOP_OPS, _LOOP_COMPUTES = 1_000_000, 10, 0.1
"""Limits from which ops that compute on the host are a loop: length in ns, number of ops, and their fraction of the
time. The time between the ops of a loop belongs to it."""
_PART_OF_LAUNCHES = 0.01
"""A thread that launches less than this fraction of the work does not set the pace of the launches."""
_WHILE_RECORDING = ("dispatch", "preprocessing", "python", "planning", "setup", "transfer", "unexplained")
"""Causes of time that counts as recording while a graph is recorded."""


_COLUMNS = ["start_ns", "duration_ns", "thread", "category", "name"]
_SLACK_NS = 1_000
"""Error of the recorded end of a Python call, in ns, by which it may end after the call that made it."""
_BLOCK_ROWS = 1 << 15
"""Number of host rows that are processed at a time, which needs less memory than all at once."""


class Launching(msgspec.Struct, frozen=True, eq=False):
    """The threads that launch work, and the ascending times of their launches and module calls."""

    threads: Bools
    """Whether each thread, by its number, launches work."""
    launches: Ints
    modules: Ints
    to_host: Bools
    """Whether each host row launched a copy to the host."""
    blocked: Rows = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Host rows of launches that waited for a full queue, in order."""
    recording: Covered = msgspec.field(default_factory=lambda: Covered(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    """Time in which graphs are recorded."""


def launching(host: Host, work: pd.DataFrame) -> Launching:
    """Return the launching threads of `work`, rows of WORK."""
    known = (work["launch"] >= 0).to_numpy()
    rows = work["launch"].to_numpy()[known]
    counts = np.bincount(host.thread[rows], minlength=int(host.thread.max(initial=-1)) + 1)
    threads = (counts > 0) & (counts >= _PART_OF_LAUNCHES * counts.sum())
    modules = np.flatnonzero(host.is_module & threads[host.thread])
    to_host = np.zeros(len(host.start), dtype=bool)
    to_host[rows[is_copy_to_host(work["name"])[known]]] = True
    launches, calls = np.sort(host.start[rows]), np.sort(host.start[modules])
    return Launching(threads, launches, calls, to_host, recording=recording_graphs(host))


def host_activity(host: pd.DataFrame, by: Launching, begin: Ints, end: Ints) -> pd.DataFrame:
    """Return how the host spent the time of windows, which must not overlap and be in order.

    Columns are window, cause, row (of the host table; -1 for none, or for the sum of dispatch) and duration_ns. The
    durations of a window sum to its length.
    """
    rows, first, last = _meeting(host, by, begin, end)
    parts = []
    for low, high in pairwise(_blocks(first, len(begin))):
        inside = rows[(first < high) & (last >= low)]
        code, window, row, ns = _activity(host, by, inside, begin[low:high], end[low:high])
        parts.append((code, window + low, row, ns))
    cause, window, row, ns = map(np.concatenate, zip(*parts, strict=True))
    return pd.DataFrame({"window": window, "cause": categorical(cause), "row": row, "duration_ns": ns})


def _meeting(host: pd.DataFrame, by: Launching, begin: Ints, end: Ints) -> tuple[Rows, Rows, Rows]:
    """Return the rows of the launching threads that overlap a window: row, first window, last window."""
    start, duration = host["start_ns"].to_numpy(), host["duration_ns"].to_numpy()
    met = [np.zeros((3, 0), dtype=np.int32)]
    for low in range(0, len(host), _BLOCK_ROWS):
        block = slice(low, low + _BLOCK_ROWS)
        stop = start[block] + duration[block]
        first = np.searchsorted(end, start[block], "right")
        last = np.searchsorted(begin, stop, "left") - 1
        inside = np.flatnonzero((last >= first) & by.threads[host["thread"].to_numpy()[block]])
        met.append(np.stack([inside + low, first[inside], last[inside]]).astype(np.int32))
    rows, first, last = np.concatenate(met, axis=1)
    return rows, first, last


def _blocks(first: Rows, windows: int) -> list[int]:
    """Return where to cut the windows so that about `_BLOCK_ROWS` rows begin in each block of them."""
    begun = np.cumsum(np.bincount(first, minlength=windows)) // _BLOCK_ROWS
    return [0, *(np.flatnonzero(np.diff(begun)) + 1).tolist(), windows]


def _activity(
    host: pd.DataFrame, by: Launching, rows: Rows, begin: Ints, end: Ints
) -> tuple[Codes, Ints, Ints, npt.NDArray[np.float64]]:
    """Return cause, window, row and duration for windows that overlap only these rows."""
    part = host[_COLUMNS].iloc[rows].reset_index(drop=True)
    part["name"] = part["name"].cat.remove_unused_categories()
    nest = Nest(part, np.ones(len(part), dtype=bool), by_time=int(by.threads.sum()) > 1, slack_ns=_SLACK_NS)
    start, stop, owner = innermost_segments(part, nest)
    piece, window = _pairs(start, stop, begin, end)
    length = np.minimum(stop[piece], end[window]) - np.maximum(start[piece], begin[window])
    owner = owner[piece]
    kind = kinds(part, nest, by.to_host[rows] | np.isin(rows, by.blocked), by.launches, by.modules)
    cause = _causes(part, kind, owner, length)
    bare_window, bare_start, bare_length = _uncovered(part, nest.rows[nest.parent < 0], begin, end)
    bare = np.where(bare_length < LONG_STRETCH_NS, CODE["dispatch"], CODE["unexplained"])
    window, length = np.concatenate([window, bare_window]), np.concatenate([length, bare_length])
    cause, at = np.concatenate([cause, bare]), np.concatenate([start[piece], bare_start])
    computes = np.concatenate([kind[owner] == CODE[COMPUTING], np.zeros(len(bare), dtype=bool)])
    recording = by.recording.at(at) & is_any(cause, _WHILE_RECORDING)
    cause = np.where(recording, CODE["recording"], cause)
    looping = (cause == CODE["dispatch"]) & _loop_pieces(window, at, length, computes, len(begin))
    return _summed(
        end - begin,
        cause=np.where(looping, CODE["preprocessing"], cause),
        window=window,
        row=np.concatenate([rows[owner], np.full(len(bare), -1)]),
        ns=length,
    )


def _loop_pieces(window: Ints, start: Ints, length: Ints, computes: Bools, windows: int) -> Bools:
    """Return which pieces lie between the first and the last op that computes on the host, if these ops form a loop."""
    of, begin, ns = window[computes], start[computes], length[computes]
    first = np.full(windows, np.iinfo(np.int64).max)
    last = np.full(windows, np.iinfo(np.int64).min)
    np.minimum.at(first, of, begin)
    np.maximum.at(last, of, begin + ns)
    count, computing = np.bincount(of, minlength=windows), np.bincount(of, ns, minlength=windows)
    span = np.where(count > 0, last - np.minimum(first, last), 0)
    loops = (span >= LOOP_NS) & (count >= _LOOP_OPS) & (computing >= _LOOP_COMPUTES * span)
    return loops[window] & (start >= first[window]) & (start + length <= last[window])


def _causes(part: pd.DataFrame, kind: Codes, owner: npt.NDArray, length: Ints) -> Codes:
    """Return the causes of stretches of time in which rows of these kinds were innermost.

    The time of the framework's ranges and frames without an op is dispatch, however long it is.
    """
    category, other = part["category"], ~is_framework(part)
    code = (other & one_of(category, ("python", "module")))[owner]
    ranges = (other & (category == "range").to_numpy())[owner]
    kind = kind[owner]
    long = (kind == CODE["dispatch"]) & (length >= LONG_STRETCH_NS)
    computing = kind == CODE[COMPUTING]
    tests = {
        "python": long & code,
        "unexplained": long & ranges,
        "planning": long & is_library_op(part)[owner],
        "preprocessing": computing & (length >= LONG_COMPUTING_NS),
        "dispatch": computing,
    }
    return first_true(tests, kind)


def _uncovered(part: pd.DataFrame, roots: Rows, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return window, start and length of the stretches in which no row is open."""
    start = part["start_ns"].to_numpy()[roots].astype(np.int64)
    first, last = Covered(start, start + part["duration_ns"].to_numpy()[roots]).spans()
    left = np.concatenate([[np.iinfo(np.int64).min], last])
    right = np.concatenate([first, [np.iinfo(np.int64).max]])
    of, window = _pairs(left, right, begin, end)
    start = np.maximum(left[of], begin[window])
    return window, start, np.minimum(right[of], end[window]) - start


def _summed(
    span: Ints, cause: Codes, window: Ints, row: Ints, ns: Ints
) -> tuple[Codes, Ints, Ints, npt.NDArray[np.float64]]:
    """Sum the pieces by window, cause and row, scaled so that overlapping rows of several threads share the window."""
    some = ns > 0
    row = np.where(cause == CODE["dispatch"], -1, row)
    sums, keys, _ = sums_by(ns[some], window[some], cause[some], row[some] + 1)
    of, code, after = keys
    total = np.bincount(of, sums, len(span))
    share = span / np.maximum(total, 1)
    return code.astype(np.int8), of, after - 1, sums * share[of]


def _pairs(start: Ints, stop: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the pairs (piece, window) that overlap. Pieces may be in any order; windows are in order and disjoint."""
    first, after = np.searchsorted(end, start, "right"), np.searchsorted(begin, stop, "left")
    count = np.maximum(after - first, 0)
    piece = np.repeat(np.arange(len(start)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return piece, first[piece] + offset


def recording_graphs(host: Host) -> Covered:
    """Return the time of all captures, with that of the calls of compiled code around them.

    A call of compiled code that records a graph also checks and copies its inputs for it, and logs its metrics.
    """
    spans = np.array(host.captures, dtype=np.int64).reshape(-1, 2)
    begin, end = spans[:, 0], spans[:, 1]
    if not len(spans):
        return Covered(begin, end)
    calls = np.flatnonzero((host.is_op | host.is_range) & host.compiled_regions)
    start = host.start[calls]
    stop = start + host.duration[calls]
    around = _holds_any(begin, start, stop)
    return Covered(np.concatenate([begin, start[around]]), np.concatenate([end, stop[around]]))


def _holds_any(times: Ints, start: Ints, stop: Ints) -> Bools:
    """Return which spans contain at least one of the times."""
    ordered = np.sort(times)
    return np.searchsorted(ordered, start) < np.searchsorted(ordered, stop)
