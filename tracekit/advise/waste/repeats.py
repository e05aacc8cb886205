"""Stretches of ops that repeat in a step on inputs of equal types and shapes."""

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.cost import Cost, Product, tensors
from tracekit.analyzers.predict import Baseline, OpList, Rows, alike, in_phase, remembered, which
from tracekit.analyzers.trace import recorded_shapes

Tensors = tuple[tuple[str, tuple[int, ...]], ...]
"""Type and shape of each tensor among the inputs of an op."""
Span = tuple[int, int]
"""Place of the first op of a stretch, and the place after its last one."""
FILLS = ("aten::fill_", "aten::zero_")
"""Ops that fill a tensor with one number."""


def product_of(cost: Cost | None) -> Product | None:
    """Return the product of matrices that an op computes; None: it computes none, or its cost is unknown."""
    work = cost.work if cost is not None else None
    return work if isinstance(work, Product) else None


def repeated(base: Baseline, pattern: re.Pattern[str]) -> Iterator[list[Span]]:
    """Yield the spans of equal calls of the forward pass that match the pattern, of each call that is made again."""
    ops, codes = base.ops, codes_of(base)
    called = which(ops.call, pattern.match) & ~in_phase(ops, "backward")
    same: dict[bytes, list[Span]] = {}
    for start, end in spans_of(called):
        same.setdefault(codes[start:end].tobytes(), []).append((start, end))
    yield from (each for each in same.values() if len(each) > 1)


def spans_of(rows: Rows) -> list[Span]:
    """Return the stretches of successive selected ops."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows.view(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def extended(base: Baseline, spans: list[Span], belongs: Callable[[Tensors], bool], after: bool) -> list[Span]:
    """Return the spans with the ops before them, and if `after` is set behind, that are equal at all of them and belong
    to them."""

    def fits(place: int) -> bool:
        return _inputs(base)[place] is not None and belongs(tensors_in(base, place, place + 1))

    behind = lengthened(base, spans, fits) if after else spans
    codes, before, room = codes_of(base), 0, min(b[0] - a[1] for a, b in pairwise(behind))
    room = min(room, spans[0][0])
    while before < room and len({int(codes[start - before - 1]) for start, _ in spans}) == 1:
        if not fits(spans[0][0] - before - 1):
            break
        before += 1
    return [(start - before, end) for start, end in behind]


def lengthened(base: Baseline, spans: list[Span], follows: Callable[[int], bool]) -> list[Span]:
    """Return the spans with the ops behind them that are equal at all of them and follow."""
    codes, more = codes_of(base), 0
    ends = [start for start, _ in spans[1:]] + [len(base.ops)]
    room = min(limit - end for (_, end), limit in zip(spans, ends, strict=True))
    while more < room and len({int(codes[end + more]) for _, end in spans}) == 1 and follows(spans[0][1] + more):
        more += 1
    return [(start, end + more) for start, end in spans]


def inside(ops: OpList, spans: list[Span]) -> Rows:
    rows = np.zeros(len(ops), dtype=bool)
    for start, end in spans:
        rows[start:end] = True
    return rows


_CHOOSES = re.compile(r"^aten::(?:topk|argm\w+|multinomial|nonzero|rand\w*|random_|bernoulli_?)$")


def chooses(base: Baseline, spans: list[Span]) -> bool:
    """Return whether an op from the first to the last of these spans chooses or draws other inputs, or brings them from
    the host."""
    ops, between = base.ops, slice(spans[0][0], spans[-1][1])
    return bool(
        which(ops.name[between], _CHOOSES.match).any() or base.recorded.copies_like(ops, TO_DEVICE)[between].any()
    )


def nodes_of_gradients(ops: OpList) -> set[str]:
    """Return the names of autograd's nodes in the backward pass, in small letters, without their numbers."""
    return {call.rpartition(" ")[2].rstrip("0123456789").lower() for call in ops.call[in_phase(ops, "backward")]}


def has_gradient(nodes: set[str], name: str) -> bool:
    """Return whether a node of autograd is of this op, or of one whose name begins so: LinalgSolveExBackward0."""
    return any(node.startswith(name.replace("aten::", "").replace("_", "")) for node in nodes)


def of_sizes(sizes: set[int], tensors: Tensors) -> bool:
    return all(math.prod(shape) in sizes for _, shape in tensors)


@remembered
def codes_of(base: Baseline) -> npt.NDArray[np.intp]:
    """Return a number for each op, equal for ops of one name, call and cost with equal inputs."""
    ops = base.ops
    words = [pd.factorize(column)[0] for column in (ops.name, ops.call)]
    sizes, _ = alike(ops.cost, _inputs(base))
    return np.unique(np.stack([*words, sizes], axis=1), axis=0, return_inverse=True)[1].ravel()


@remembered
def _inputs(base: Baseline) -> npt.NDArray[np.object_]:
    return base.recorded.inputs_of(base.ops)


def tensors_in(base: Baseline, start: int, end: int) -> Tensors:
    """Return all tensors among the inputs of these ops."""
    return tuple(each for given in _inputs(base)[start:end] if given for each in _tensors(given))


@cache
def _tensors(given: tuple[str, str]) -> Tensors:
    shapes, kinds = recorded_shapes(given[0]), re.findall(r'"([^"]*)"', given[1])
    return tuple((kind, tuple(shape)) for kind, shape in zip(kinds, shapes, strict=False) if shape)


def layouts(base: Baseline, place: int) -> list[tuple[Any, Any]]:
    """Return the shape and strides of each input of an op, or those of a list of tensors; none if not recorded."""
    recorded = base.recorded.strides_of(base.ops[place : place + 1])[0]
    if not recorded or not all(recorded):
        return []
    shapes, strides = (msgspec.json.decode(text) for text in recorded)
    return list(zip(shapes, strides, strict=False))


_FIRST_LIST = re.compile(r"\[(\[\[[\d,\s]*\](?:,\s*\[[\d,\s]*\])*\])")


def joined_in(base: Baseline, place: int, of: npt.NDArray[np.object_] | None = None) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that an op is given as a list, as `cat` is, or their strides, if these are
    given; [] if they were not recorded."""
    shapes, strides = _inputs(base)[place] or ("", ""), of[place] if of is not None else None
    first = _FIRST_LIST.match(shapes[0] if of is None else (strides or ("", ""))[1])
    return [tuple(shape) for shape in recorded_shapes(first[1]) if shape] if first else []


def size_of(kind: str, shape: tuple[int, ...]) -> int:
    """Return the size of a tensor in bytes; of a type that is not known, as of fp32."""
    return (tensors.find(kind) or tensors.FLOAT32).bytes * math.prod(shape)


_GATHERS = ("aten::index", "aten::index_select", "aten::gather")
_OF_ROWS = _GATHERS[:2]


def gathered_from(base: Baseline, place: int) -> tuple[int, int] | None:
    """Return the rows, and elements of a row, of the tensor from which an op gathers, by its recorded shape; None: it
    gathers none."""
    gathers = base.ops.name[place] in _GATHERS and base.ops.call[place] in _OF_ROWS
    given = tensors_in(base, place, place + 1) if gathers else ()
    return (given[0][1][0], math.prod(given[0][1][1:])) if given else None
