"""Finds the steps of a trace without step markers, by repetition.

Training repeats the optimizer's step, loops over data repeat the loader's next batch, and inference repeats the call
of the outermost module. If the host recorded none of these, the sequence of kernels may be periodic, a program's
ranges or an op that reads the model's inputs may repeat, or passes of equal kernels follow each other.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_period import pass_starts, period_starts
from tracekit.analyzers.attribute.nesting import Nest
from tracekit.analyzers.attribute.origin import Origin
from tracekit.analyzers.core import Ints
from tracekit.analyzers.trace import recorded_dims

_UPDATE = re.compile(r"Optimizer\.step#")
_ITERATION = re.compile(
    r"(?:.*[^A-Za-z])?(?:run_)?(?:train(?:ing)?|inference|decode|denois(?:e|ing)|predict(?:ion)?|evaluat(?:e|ion)|val(?:idation)?)"
    r"(?:[ _-](?:step|batch|iteration|iter))?"
    r"|(?:DeepSpeedEngine|DistributedDataParallel|FullyShardedDataParallel)\.forward|(?:## )?forward(?: ##)?",
    re.IGNORECASE,
)
"""Names of ranges around an iteration, or around its first part, that do not count iterations."""
_NEXT_BATCH = re.compile(r"enumerate\(DataLoader\)#.*__next__")
_NEVER = np.iinfo(np.int64).max


class Window(NamedTuple):
    """The host time in which repetitions are searched."""

    start_ns: int
    end_ns: int


class _Calls(NamedTuple):
    start: Ints
    end: Ints


def repeated(host: Host, items: WorkItems, origin: Origin, window: Window | None) -> tuple[Ints, Ints]:
    """Return starts and ends of the repetitions on the host, in order and without gaps; empty with fewer than two."""
    window = window or _whole(host, items)
    updates = _named(host, window, _UPDATE)
    none = np.zeros(0, dtype=np.int64)
    if len(updates.start) == 1:
        return none, none
    batches = _named(host, window, _NEXT_BATCH)
    if len(updates.start):
        return _iterations(updates, batches if len(batches.start) else _calls_of_any_model(host, window), window)
    if len(batches.start) > 1:
        return batches.start, np.append(batches.start[1:], window.end_ns)
    calls = _outermost_modules(host, window)
    if len(calls.start) > 1:
        return calls.start, np.append(calls.start[1:], _end_of_last(calls, window))
    start = period_starts(items, origin, window.start_ns, window.end_ns)
    start = start if len(start) else _begun(host, window)
    start = start if len(start) else _passes(host, items, origin, window)
    start = start if len(start) else pass_starts(host, items, origin, window.start_ns, window.end_ns)
    return start, np.append(start[1:], window.end_ns)[: len(start)]


def _begun(host: Host, window: Window) -> Ints:
    """Return when ranges of iterations that no other encloses began; empty with fewer than two."""
    rows = _outermost(host, host.ranges.rows_of(_ITERATION.fullmatch))
    start = _calls(host, rows, host.name.iloc[rows].astype(str), window).start
    return start if len(start) > 1 else start[:0]


def _outermost(host: Host, rows: Ints) -> Ints:
    """Return the rows that no other of these encloses on its thread."""
    mask = np.zeros(len(host.start), dtype=bool)
    mask[rows] = True
    nest = Nest(host.table, mask)
    return nest.rows[nest.parent < 0].astype(np.int64)


def _passes(host: Host, items: WorkItems, origin: Origin, window: Window) -> Ints:
    """Return when forward passes began; empty if fewer than two are known.

    Models that run side by side read their inputs on separate streams. The passes of one of them are returned.
    """
    rows = input_ops(host.table)
    start = np.sort(_calls(host, rows, host.name.iloc[rows].astype(str), window).start)
    order = np.argsort(origin.time_ns, kind="stable")
    first = np.searchsorted(origin.time_ns[order], start)
    start, first = start[first < len(order)], first[first < len(order)]
    stream = items.stream[order[first]]
    start = start[stream == stream[:1]]
    return start if len(start) > 1 else start[:0]


def _whole(host: Host, items: WorkItems) -> Window:
    begin = host.start.min(initial=items.start.min())
    return Window(int(begin), int((host.start + host.duration).max(initial=items.end.max())))


def _iterations(updates: _Calls, begins: _Calls, window: Window) -> tuple[Ints, Ints]:
    """Return the iterations of training.

    An iteration begins with the first batch (or call of the model) after the previous step of the optimizer, or else
    at the end of that step. An iteration that begins after the last step was cut off by the recording.
    """
    after = np.append(window.start_ns, updates.end)
    until = np.append(updates.start, window.end_ns)
    first = np.append(begins.start, _NEVER)[np.searchsorted(begins.start, after)]
    has_begin = first < until
    start = np.where(has_begin, first, after)
    if not has_begin[-1]:
        return start[:-1], np.append(start[1:-1], updates.end[-1])
    return start, np.append(start[1:], window.end_ns)


def _end_of_last(calls: _Calls, window: Window) -> int:
    """Return the end of the last step: its last call's end, plus the usual time between two calls."""
    between = np.median(calls.start[1:] - calls.end[:-1])
    return min(int(calls.end[-1] + max(between, 0)), window.end_ns)


def _named(host: Host, window: Window, pattern: re.Pattern[str]) -> _Calls:
    """Return the calls of ranges with the most frequent name that matches the pattern."""
    rows = host.ranges.rows_of(pattern.match)
    return _calls(host, rows, host.name.iloc[rows].astype(object), window)


def _outermost_modules(host: Host, window: Window) -> _Calls:
    """Return the calls of the outermost module with the most time."""
    rows = _outermost_rows(host)
    names = host.name.iloc[rows].astype(str)
    time = pd.Series(host.duration[rows]).groupby(names.to_numpy()).sum()
    if time.empty:
        return _calls(host, rows, names, window)
    chosen = (names == time.idxmax()).to_numpy()
    return _calls(host, rows[chosen], names[chosen], window)


def _calls_of_any_model(host: Host, window: Window) -> _Calls:
    """Return the calls of all outermost modules: an iteration may train several models."""
    rows = _outermost_rows(host)
    return _calls(host, rows, pd.Series("", index=range(len(rows)), dtype=object), window)


def _outermost_rows(host: Host) -> Ints:
    """Return the rows of modules outside all others, from nn.Module events or tracekit's ranges. A call that a CUDA
    graph records does no work."""
    events = np.flatnonzero((host.table["category"] == "module").to_numpy())
    rows = _outermost(host, events if len(events) else host.ranges.rows_of(host.ranges.is_ours("module")))
    for begin, end in host.captures:
        rows = rows[(host.start[rows] < begin) | (host.start[rows] >= end)]
    return rows


def _calls(host: Host, rows: Ints, names: "pd.Series[str]", window: Window) -> _Calls:
    """Return the calls of the most frequent name in the window, ordered by start, on the thread with most of them."""
    start = host.start[rows]
    inside = (start >= window.start_ns) & (start <= window.end_ns)
    rows, names = rows[inside], names[inside]
    if not len(rows):
        return _Calls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    rows = rows[(names == names.value_counts().index[0]).to_numpy()]
    thread = host.thread[rows]
    rows = rows[thread == np.bincount(thread).argmax()]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    return _Calls(host.start[rows], host.start[rows] + host.duration[rows])


_TOKENS = "aten::embedding"
_IMAGES = ("aten::conv2d", "aten::conv3d", "aten::convolution")
"""The last one is nested in the others."""
_COLOURS = 4
"""Maximum number of channels of an image; inner layers have more."""
_IMAGE_RANK = 4
"""Smallest rank of a convolution's weights."""


def input_ops(host: pd.DataFrame) -> Ints:
    """Return the host rows of the op that reads the inputs, one for each forward pass; empty without such an op.

    It is the lookup in the largest table, or else the convolution of an image with the most weights. The largest table
    is that of tokens; smaller ones hold positions and types. A pass that reads an image and then tokens, as CLIP's
    does, begins with the image.
    """
    names, shapes = host["name"], host["shapes"]
    lookups = np.flatnonzero((names == _TOKENS).to_numpy())
    tokens = _rows_of_largest(lookups, shapes, _table_size)
    images = next(filter(len, (_images(names == name, shapes) for name in _IMAGES)), tokens[:0])
    return images if not len(tokens) or _each_before(host, images, tokens) else tokens


def _images(called: "pd.Series[bool]", shapes: "pd.Series[str]") -> Ints:
    return _rows_of_largest(np.flatnonzero(called.to_numpy()), shapes, _filters_size)


def _each_before(host: pd.DataFrame, images: Ints, tokens: Ints) -> bool:
    """Return whether there are as many images as lookups of tokens, and each lookup follows its image."""
    if len(images) != len(tokens):
        return False
    first, then = (np.sort(host["start_ns"].to_numpy()[rows]) for rows in (images, tokens))
    return bool((first < then).all() and (then[:-1] < first[1:]).all())


def _rows_of_largest(rows: Ints, shapes: "pd.Series[str]", size: Callable[[str], int]) -> Ints:
    """Return the rows whose weights are the largest, if their size is known."""
    texts = shapes.iloc[rows].astype(str)
    sizes = texts.map({text: size(text) for text in texts.unique()}).to_numpy(dtype=np.int64)
    return rows[(sizes == sizes.max()) & (sizes > 0)] if len(rows) else rows


def _table_size(shapes: str) -> int:
    return _product(recorded_dims(shapes, 0))


def _filters_size(shapes: str) -> int:
    weights = recorded_dims(shapes, 1)
    return _product(weights) if len(weights) >= _IMAGE_RANK and weights[1] <= _COLOURS else 0


def _product(dims: list[int]) -> int:
    return int(np.prod(dims, dtype=np.float64)) if dims else 0
