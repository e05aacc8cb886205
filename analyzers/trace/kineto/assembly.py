"""Join the columns of all chunks, check and order them, and build the HOST and DEVICE tables."""

import ctypes
import mmap
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.core import Table
from tracekit.analyzers.trace.kineto.columns import MISSING, NEGATIVE, Coded, Columns, join, narrowed, reorder, take
from tracekit.analyzers.trace.kineto.event_columns import EventColumns
from tracekit.analyzers.trace.kineto.events import DEVICE_KINDS, HOST_KINDS
from tracekit.analyzers.trace.problems import Problem, problem
from tracekit.analyzers.trace.trace import DEVICE, HOST

DAY_NS = 86_400 * 10**9


def horizon(start_ns: np.ndarray, duration_ns: np.ndarray) -> int:
    """Return the last start, or the last end of a row of at most a day, whichever is later. There must be at least one
    row."""
    if duration_ns.max() > DAY_NS:
        duration_ns = np.where(duration_ns > DAY_NS, 0, duration_ns)
    return int((start_ns + duration_ns).max())


def cap_days(start_ns: np.ndarray, duration_ns: np.ndarray, horizon_ns: int) -> np.ndarray:
    """Cap durations over a day at the horizon. Return the same array if there are none."""
    if duration_ns.max(initial=0) <= DAY_NS:
        return duration_ns
    return np.where(duration_ns > DAY_NS, np.maximum(horizon_ns - start_ns, 0), duration_ns)


def cap_overtaken(start_ns: np.ndarray, duration_ns: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """Cap durations that end after later work of the stream has ended at the start of the next work.

    Rows are ordered by start. `stream` numbers the streams; rows of -1 are neither capped nor evidence. Work of a
    stream completes in order, but may begin before its predecessor has ended (programmatic dependent launch): such an
    overlap stays.
    """
    capped = duration_ns.copy()
    rows = np.flatnonzero(stream >= 0)
    rows = rows[np.argsort(stream[rows], kind="stable")]
    for of_stream in np.split(rows, np.flatnonzero(np.diff(stream[rows])) + 1):
        start = start_ns[of_stream]
        end = start + duration_ns[of_stream]
        earliest_later_end = np.minimum.accumulate(end[::-1])[::-1][1:]
        overtaken = np.flatnonzero(end[:-1] > earliest_later_end)
        capped[of_stream[overtaken]] = start[overtaken + 1] - start[overtaken]
    return capped


_MONTH_NS = 30 * DAY_NS
_RUNTIME = HOST_KINDS.index("runtime")
_IMPOSSIBLE = ": occupancies above 100 % or absurd ids of graphs"
_SHOWN_CATEGORIES = 5
_SHOWN_CHARACTERS = 40


class Tables(msgspec.Struct, frozen=True):
    """HOST and DEVICE with times after `base_ns`, the names of HOST's threads, and the problems."""

    host: pd.DataFrame
    device: pd.DataFrame
    base_ns: int
    threads: tuple[str, ...]
    problems: list[Problem]


def assemble(parts: Sequence[EventColumns]) -> Tables | None:
    """Build the tables of all chunks (at least one); None if there is neither host nor device work."""
    pairs, unpaired = _paired(join([p.marks for p in parts]))
    host, device = join([*(p.host for p in parts), pairs]), join([p.device for p in parts])
    release_freed()
    host, device, outliers = _without_outliers(host, device)
    if not len(host["start_ns"]) + len(device["start_ns"]):
        return None
    base_ns = _rebase(host, device)
    changed = _durations(host, device)
    reorder(host, _host_order(host))
    release_freed()
    reorder(device, np.lexsort((device["duration_ns"], device["start_ns"])))
    device["duration_ns"] = _cap_overtaken(device)
    changed["capped-duration"] += _count(device["duration_ns"] != device["settled_ns"])
    names = {thread: name for p in parts for thread, name in p.thread_names.items()}
    return Tables(
        host=_table(HOST, host, HOST_KINDS),
        device=_table(DEVICE, device, DEVICE_KINDS),
        base_ns=base_ns,
        threads=tuple(names.get((pid, tid), f"thread {tid}") for pid, tid in host["thread"].values),
        problems=[
            problem("implausible-time", outliers + sum(p.dropped for p in parts)),
            problem("unpaired-events", unpaired),
            problem(
                "impossible-values",
                sum(p.impossible for p in parts),
                _IMPOSSIBLE,
            ),
            _unknown(sum((p.unknown for p in parts), Counter())),
            *(problem(code, count) for code, count in changed.items()),
        ],
    )


def _paired(marks: Columns) -> tuple[Columns, int]:
    """Pair begin (B) and end (E) events. Return the host columns of the pairs, and the number of unpaired marks.

    On a thread, ordered by time, a begin adds a nesting level, and an end removes one. The two marks of a pair are
    therefore adjacent among the marks of their thread and level.
    """
    order = np.lexsort((marks["start_ns"], marks["thread"].codes))
    rows = take(marks, order)
    thread, begins, start = rows["thread"].codes, rows["begins"], rows["start_ns"]
    depth = np.cumsum(np.where(begins, 1, -1))
    level = np.where(begins, depth, depth + 1)
    by_level = np.lexsort((level, thread))
    first, second = by_level[:-1], by_level[1:]
    pairs = begins[first] & ~begins[second] & (level[first] == level[second]) & (thread[first] == thread[second])
    first, second = first[pairs], second[pairs]
    events = take(rows, first)
    events["duration_ns"] = narrowed(start[second] - start[first])
    return take(events, np.asarray(events["category"]) >= 0), len(start) - 2 * len(first)


def _without_outliers(host: Columns, device: Columns) -> tuple[Columns, Columns, int]:
    """Keep the rows whose start is within a month of the median start, and count the others."""
    spans = [(int(c["start_ns"].min()), int(c["start_ns"].max())) for c in (host, device) if len(c["start_ns"])]
    if not spans or max(last for _, last in spans) - min(first for first, _ in spans) < _MONTH_NS:
        return host, device, 0
    starts = np.concatenate([host["start_ns"], device["start_ns"]])
    middle = np.partition(starts, starts.size // 2)[starts.size // 2]
    near = np.abs(starts.astype(np.float64) - middle) < _MONTH_NS  # int64 could overflow
    rows = len(host["start_ns"])
    return take(host, near[:rows]), take(device, near[rows:]), int((~near).sum())


def _rebase(host: Columns, device: Columns) -> int:
    base = int(min(c["start_ns"].min() for c in (host, device) if len(c["start_ns"])))
    for columns in (host, device):
        columns["start_ns"] -= base
    return base


def _durations(host: Columns, device: Columns) -> Counter[str]:
    """Replace missing, negative and unended durations, and count them by problem code.

    Durations of the device that are capped are counted later. The device gets `settled_ns`, the durations before any
    capping, and `certain`, whether they were recorded.
    """
    changed: Counter[str] = Counter()
    device["certain"] = device["duration_ns"] >= 0
    for columns in (host, device):
        ns = columns["duration_ns"]
        changed.update({"missing-duration": _count(ns == MISSING), "negative-duration": _count(ns == NEGATIVE)})
        np.maximum(ns, 0, out=ns)
    settled, device["settled_ns"] = host["duration_ns"], device["duration_ns"]
    last = max(horizon(c["start_ns"], c["duration_ns"]) for c in (host, device) if len(c["start_ns"]))
    for columns in (host, device):
        columns["duration_ns"] = cap_days(columns["start_ns"], columns["duration_ns"], last)
    changed["capped-duration"] = _count(host["duration_ns"] != settled)
    return changed


def _count(mask: np.ndarray) -> int:
    return int(mask.sum())


def _cap_overtaken(device: Columns) -> np.ndarray:
    """Cap the durations of rows ordered by start.

    Kernels of one CUDA graph may run concurrently under one stream id. Unknown durations do not imply later work.
    """
    one_launch = pd.Index(device["correlation"]).duplicated(keep=False) & (device["correlation"] >= 0)
    in_order = device["certain"] & (device["stream"] >= 0) & (device["graph"] < 0) & ~one_launch
    numbers, streams = pd.factorize(device["stream"])
    stream = device["device"].astype(np.int64) * len(streams) + numbers
    stream = np.where(in_order, stream - stream.min(initial=0), -1)
    return cap_overtaken(device["start_ns"], device["duration_ns"], stream)


def _host_order(host: Columns) -> np.ndarray:
    """Order rows by thread, start, and longest first. Among equals a runtime call is innermost; others keep their
    order."""
    is_runtime = host["category"] == _RUNTIME
    order = np.lexsort((is_runtime, -host["duration_ns"], host["start_ns"], host["thread"].codes))
    return narrowed(order)


def _table(table: Table, columns: Columns, kinds: Sequence[str]) -> pd.DataFrame:
    values = {c.name: columns[c.name] for c in table.columns}
    values["category"] = Coded(columns["category"], list(kinds))
    if "thread" in values:
        values["thread"] = columns["thread"].codes
    return table.frame({n: v.categorical() if isinstance(v, Coded) else v for n, v in values.items()})


def _unknown(categories: Counter[str]) -> Problem:
    shown = [repr(c[:_SHOWN_CHARACTERS]) for c, _ in categories.most_common(_SHOWN_CATEGORIES)]
    more = ", ..." if len(categories) > _SHOWN_CATEGORIES else ""
    return problem("unknown-category", categories.total(), ", ".join(shown) + more)


_GROWN_BYTES = 16 << 20
"""Growth of the process from which freed memory is returned: it takes milliseconds to look for it."""
_RESIDENT = [0]


def release_freed() -> None:
    """Return freed memory between live objects to the system, if the C library is glibc.

    After reading a large trace, this is a third of the process's memory.
    """
    if sys.platform != "linux" or _resident() - _RESIDENT[0] < _GROWN_BYTES:
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    _RESIDENT[0] = _resident()


def _resident() -> int:
    """Return the memory that the process holds, in bytes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0
