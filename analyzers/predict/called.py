"""Facts about the calls of ops that the rows of a trace's host hold: their inputs, and the views before them."""

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import ENGINE, matching, one_of, take
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict.op_columns import Objects
from tracekit.analyzers.trace import recorded_dims

_FP32 = '["","6",'
"""Beginning of the recorded values of `aten::to` with fp32, whose number in PyTorch is 6, as its first argument."""


def idle_casts(host: pd.DataFrame) -> tuple[int, ...]:
    """Return the number of elements of each cast in these host rows that does nothing, by recorded shapes."""
    asks_for_fp32, is_fp32 = _begins_with(host["values"], _FP32), _begins_with(host["dtypes"], '["float"')
    casts = host[(host.name == "aten::to") & asks_for_fp32 & is_fp32].pipe(lambda rows: rows[_empty(rows, host)])
    by_shapes = {shapes: _elements(shapes) for shapes in casts.shapes.cat.remove_unused_categories().cat.categories}
    return tuple(by_shapes.get(shapes, 0) for shapes in casts.shapes)


def _begins_with(column: pd.Series, begin: str) -> npt.NDArray[np.bool_]:
    codes = np.flatnonzero([text.startswith(begin) for text in column.cat.categories])
    return np.isin(column.cat.codes.to_numpy(), codes)


def _empty(calls: pd.DataFrame, host: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Select the calls during which no op and no call of the device's runtime begins."""
    begins = np.sort(host.start_ns[one_of(host.category, ("op", "runtime"))].to_numpy())
    start = calls.start_ns.to_numpy()
    return np.searchsorted(begins, start + calls.duration_ns.to_numpy()) <= np.searchsorted(begins, start, "right")


def _elements(shapes: str) -> int:
    dims = recorded_dims(shapes, 0)
    return math.prod(dims) if dims else 1


READS_A_VALUE = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
"""Calls that copy one number to the host and wait for it."""


def nodes(host: pd.DataFrame, calls: Ints, names: Objects) -> npt.NDArray[np.int64]:
    """Return the number of the node of autograd's graph that each call, a row of `host`, evaluates; -1 for others."""
    numbers = take(host["sequence"].to_numpy(), np.maximum(calls, -1))
    return np.where(matching(names, ENGINE), numbers, -1)


_ATTENTION = "aten::scaled_dot_product_attention"
_MASK = 3
"""Place of the mask among its inputs."""


def masks(host: pd.DataFrame, calls: Ints) -> npt.NDArray[np.object_]:
    """Return the dimensions of the mask of each call of attention, by its recorded shapes; None for other calls. A side
    along which nothing moves in memory, by the recorded strides, was 1 before the mask was expanded."""
    given, names = np.full(len(calls), None, dtype=object), take(host.name.to_numpy(), np.maximum(calls, -1), "")
    for at in np.flatnonzero(names == _ATTENTION).tolist():
        dims, steps = (recorded_dims(column.iloc[calls[at]], _MASK) for column in (host.shapes, host.strides))
        expanded = len(steps) == len(dims)
        given[at] = [1 if expanded and steps[i] == 0 else side for i, side in enumerate(dims)] or None
    return given


def inputs(host: pd.DataFrame, ops: Ints, beside: str = "dtypes") -> npt.NDArray[np.object_]:
    """Return shapes and types, or what else is recorded, of each op's inputs; None where no shapes were recorded."""
    given, known = np.full(len(ops), None, dtype=object), np.flatnonzero(ops >= 0)
    pairs = list(zip(*(host[name].iloc[ops[known]].astype(object) for name in ("shapes", beside)), strict=True))
    distinct = {pair: pair for pair in pairs}
    for place, pair in zip(known.tolist(), pairs, strict=True):
        given[place] = distinct[pair] if pair[0] else None
    return given


PARTS = ("aten::slice", "aten::narrow", "aten::unsqueeze", "aten::split", "aten::split_with_sizes", "aten::chunk")
SELECTED = ("aten::select",)
WINDOWS = ("aten::unfold",)
EXPANDED = ("aten::expand",)
_BY_ROWS = ('["","0"]', "")
"""Recorded values of a view along the first dimension."""


def made_between(host: pd.DataFrame, calls: Ints, launched: Ints, start: int) -> dict[str, npt.NDArray]:
    """Return the recorded facts about views and empty tensors between the launch before each op and its call."""
    views = {"takes": PARTS, "selected": SELECTED, "windows": WINDOWS, "expanded": EXPANDED}
    facts = {fact: viewed(names, host, calls, launched, start) for fact, names in views.items()}
    lists = {"unbound": unbound(host, calls, launched, start), "emptied": emptied(host, calls, launched, start)}
    return {**facts, **lists}


def viewed(views: Sequence[str], host: pd.DataFrame, calls: Ints, launched: Ints, start: int) -> npt.NDArray[np.bool_]:
    """Return whether one of the views begins between the launch before each op and the call of the op."""
    begins, before = np.sort(host.start_ns[one_of(host.name, views)]), np.append(start, launched[:-1])
    return np.searchsorted(begins, _called(host, calls, start)) > np.searchsorted(begins, before)


def unbound(host: pd.DataFrame, calls: Ints, launched: Ints, start: int) -> npt.NDArray[np.object_]:
    """Return the shapes of the tensors of which the program takes each row, as `for row in tensor` does,
    between the launch before each op and the call of the op; None without any."""
    views = host[one_of(host.name, ["aten::unbind"]) & host["values"].isin(_BY_ROWS)]
    called, before = _called(host, calls, start), np.append(start, launched[:-1])
    return _shapes_between(views.shapes, views.start_ns, before, called, lambda text: recorded_dims(text, 0))


_EMPTY = ("aten::empty", "aten::empty_strided")
"""Calls that all others end in which make a tensor without writing it."""
_SIZES = re.compile(r'\["\[([\d, ]{1,200})\]"')


def emptied(host: pd.DataFrame, calls: Ints, launched: Ints, start: int) -> npt.NDArray[np.object_]:
    """Return the shapes of the tensors that the program makes without writing them, as `torch.empty_like` does,
    between the launch before each op and the call of the op; None without any."""
    made, before = host[one_of(host.name, _EMPTY)], np.append(start, launched[:-1])
    return _shapes_between(made["values"], made.start_ns, before, _called(host, calls, start), _sizes)


def _sizes(values: str) -> list[int]:
    sizes = _SIZES.match(values)
    return [int(each) for each in sizes[1].split(",") if each.strip().isdecimal()] if sizes else []


def _called(host: pd.DataFrame, calls: Ints, start: int) -> Ints:
    return take(host.start_ns.to_numpy(), np.maximum(calls, -1), absent=start)


def _shapes_between(
    texts: pd.Series, begins: pd.Series, before: Ints, called: Ints, shape: Callable[[str], list[int]]
) -> npt.NDArray[np.object_]:
    """Return the shapes that these texts tell, of those that begin between two times; None without any."""
    first, last = np.searchsorted(begins, before), np.searchsorted(begins, called)
    given = np.full(len(called), None, dtype=object)
    for at in np.flatnonzero(last > first).tolist():
        given[at] = tuple(tuple(shape(each)) for each in texts.iloc[first[at] : last[at]])
    return given
