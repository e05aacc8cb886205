"""Detector of loops in Python over groups of rows, which ops with indices could do for all."""

import re

import numpy as np

from tracekit.advise.waste.as_one import for_all, gradients_of, is_small
from tracekit.advise.waste.finding import STAYS, Finding, longest
from tracekit.advise.waste.loops import loops_of_small_ops
from tracekit.advise.waste.rounds import products, rounds
from tracekit.analyzers.predict import Baseline, OpList, which

_PICKS = "aten::nonzero"
_GATHERS = re.compile(r"^aten::(?:index|index_select|gather)$")
_ADDS = re.compile(r"^aten::(?:index_add|scatter_add|scatter_reduce|index_reduce)_?$")


def loops_over_tensors(base: Baseline) -> Finding | None:
    """Find the loop that takes most of the host's time: of small ops, or of groups of rows with a product each."""
    return longest((loops_of_small_ops(base), groups_by_masks(base)), base.ops.host_ns)


def groups_by_masks(base: Baseline) -> Finding | None:
    """Find rounds that each ask which rows are of one group, and so wait for their number, multiply these rows by a
    matrix of the group, and add them to a sum, as for the relations of a graph. Groups that are assigned, not added,
    may be levels, which need each other's results."""
    ops = base.ops
    loops = [calls for calls in rounds(ops) if _sums_a_group(ops[calls[0]])]
    if not loops:
        return None
    items, places = max(map(len, loops)), np.concatenate([call for calls in loops for call in calls])
    rows = gradients_of(ops, places, items)
    rows[places] = True
    part = STAYS.mapped(lambda _: 1 / items)
    each = tuple(np.concatenate(calls) for calls in loops)
    found = Finding(rows, for_all(ops, rows, items), items, loops=each, looped=part, way="groups-by-masks")
    return found if is_small(ops, rows) else None


def _sums_a_group(call: OpList) -> bool:
    """Return whether a round picks rows, gathers and multiplies them, and adds the products up, wherever it begins."""
    gathers, adds = which(call.name, _GATHERS.match), which(call.name, _ADDS.match)
    return bool((call.name == _PICKS).any() and gathers.any() and products(call).any() and adds.any())
