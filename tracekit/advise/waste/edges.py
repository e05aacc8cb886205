"""Detector of the edges of a graph, or the entries of a sparse matrix, that are sorted again."""

import math
import re

import numpy as np

from tracekit.advise.waste.repeats import Span, Tensors, chooses, extended, inside, repeated, tensors_in
from tracekit.analyzers.predict import Baseline, Rows, in_phase, which

_ORDERS = re.compile(r"^aten::(?:coalesce|unique\w*|_unique2|_to_sparse\w*|to_sparse\w*)$")
_SORTS = re.compile(r"^aten::(?:argsort|sort)$")
_LAUNCHES_OF_A_SORT = 16
_WHOLE = ("long int", "int", "bool", "TensorList")


def sorted_edges(base: Baseline) -> tuple[Rows, Rows]:
    """Select what sorts the edges of a graph again, and what is made of edges alone right before, without and with the
    first time. Nothing between chooses other edges. The gradient of a sparse product sorts them the other way."""
    ops = base.ops
    again, all_of_it = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    of_numbers = [spans for spans in repeated(base, _SORTS) if _are_indices(tensors_in(base, *spans[0])[:1])]
    for spans in (*repeated(base, _ORDERS), *of_numbers):
        if not chooses(base, spans):
            stretches = extended(base, spans, _of_edges, after=False)
            again |= inside(ops, stretches[1:])
            all_of_it |= inside(ops, stretches)
    merged, stays = _merged_in_products(base)
    again |= inside(ops, merged[0 if stays else 1 :])
    all_of_it |= inside(ops, merged)
    turned = which(ops.call, lambda call: "Sparse" in call) & (ops.launches >= _LAUNCHES_OF_A_SORT) & again.any()
    turned &= in_phase(ops, "backward")
    return again | (turned & (np.cumsum(turned) > 1)), all_of_it | turned


_MULTIPLIES = ("aten::addmm", "aten::mm")
_UNPACKS = ("aten::copy_", "aten::div_", "aten::add_")
"""Ops that make rows and columns of numbers that were sorted, of which the last one ends."""


def _merged_in_products(base: Baseline) -> tuple[list[Span], bool]:
    """Return the stretches inside of products that number, sort and merge the entries of a sparse matrix, and whether
    the matrix stays: by recorded shapes, no op before the first one reads as many numbers as it has entries."""
    ops, spans = base.ops, list[Span]()
    sorts = which(ops.name, _MULTIPLIES.__contains__) & (ops.launches >= _LAUNCHES_OF_A_SORT)
    for place in np.flatnonzero(sorts & ~in_phase(ops, "backward")).tolist():
        if place and ops.name[place - 1] == "aten::arange" and ops.call[place - 1] == ops.call[place]:
            unpacks = np.append(which(ops.name[place + 1 :], _UNPACKS.__contains__), False)
            rows = ops.name[place : place + 1 + int(np.argmin(unpacks))]
            spans.append((place - 1, place + 1 + int(np.flatnonzero(rows == _UNPACKS[-1]).max(initial=0))))
    if not spans or chooses(base, spans):
        return [], False
    numbered = ops.cost[spans[0][0]]
    entries = int(numbered.write_bytes) // 8 if numbered is not None else 0
    before = tensors_in(base, 0, spans[0][0])
    return spans, entries > 0 and not any(math.prod(shape) in (entries, 2 * entries) for _, shape in before)


def _are_indices(tensors: Tensors) -> bool:
    return bool(tensors) and all(kind in _WHOLE for kind, _ in tensors)


def _of_edges(tensors: Tensors) -> bool:
    """Return whether the tensors are indices, and at most one number for each."""
    return all(kind in _WHOLE or len(shape) <= 1 for kind, shape in tensors)
