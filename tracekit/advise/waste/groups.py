"""Detector of loops in Python over groups of rows, which ops with indices could do for all."""

import re

import numpy as np

from tracekit.advise.waste.as_one import for_all, gradients_of, is_small
from tracekit.advise.waste.finding import STAYS, Finding, longest
from tracekit.advise.waste.loops import loops_of_small_ops
from tracekit.advise.waste.repeats import FILLS
from tracekit.advise.waste.rounds import products, rounds
from tracekit.advise.waste.separate import signature
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict import Baseline, OpList, in_phase, which

_PICKS = "aten::nonzero"
_GATHERS = re.compile(r"^aten::(?:index|index_select|gather)$")
_ADDS = re.compile(r"^aten::(?:index_add|scatter_add|scatter_reduce|index_reduce)_?$")
_SUMS = re.compile(r"^aten::add_?$")
_OF_MATRIX = re.compile(r"evaluate_function: (?:Mm|T|Transpose|Permute)Backward")


def loops_over_tensors(base: Baseline) -> Finding | None:
    """Find the loop that takes most of the host's time: of small ops, or of groups of rows with a product each."""
    return longest((loops_of_small_ops(base), groups_by_masks(base)), base.ops.host_ns)


def groups_by_masks(base: Baseline) -> Finding | None:
    """Find rounds that each gather rows of one group, multiply them by a matrix of the group, and add them to a sum, as
    for the relations of a graph: rows that a mask picks, whose number the round waits for, or of lists of indices.
    Groups that are assigned, not added, may be levels, which need each other's results."""
    ops = base.ops
    loops = [calls for calls in rounds(ops) if _sums_a_group(ops[calls[0]]) and _are_groups(base, calls)]
    if not loops:
        return None
    items, places = max(map(len, loops)), np.concatenate([call for calls in loops for call in calls])
    rows = gradients_of(ops, places, items)
    rows[places] = True
    part = STAYS.mapped(lambda _: 1 / items)
    each = tuple(np.concatenate(calls) for calls in loops)
    way = "groups-by-masks" if (ops.name[places] == _PICKS).any() else "groups-by-lists"
    found = Finding(rows, for_all(ops, rows, items), items, loops=each, looped=part, way=way)
    return found if is_small(ops, rows) else None


def _are_groups(base: Baseline, calls: list[Ints]) -> bool:
    """Return whether a mask picks the rows of each round, or training shows groups of several sizes, added to one sum,
    each with a matrix of its own: autograd adds up no gradients of one. Layers of a network on a graph read the same
    edges, and begin a sum in each."""
    ops, names = base.ops, base.ops.name[calls[0]]
    if (names == _PICKS).any():
        return True
    sizes = {tuple(signature(ops, call)) for call in calls}
    added = which(ops.name, _SUMS.match) & which(ops.call, _OF_MATRIX.search)
    gradients = products(ops) & in_phase(ops, "backward")
    own = gradients.sum() >= len(calls) > 2 * added.sum()
    return bool(own and 2 * len(sizes) > len(calls) and not which(names, FILLS.__contains__).any())


def _sums_a_group(call: OpList) -> bool:
    """Return whether a round gathers rows, multiplies them, and adds the products up, wherever it begins."""
    gathers, adds = which(call.name, _GATHERS.match), which(call.name, _ADDS.match)
    return bool(gathers.any() and products(call).any() and adds.any())
