"""Detectors, without shapes, of work on rows that expanded views repeat: draws from one row, layers of all pairs."""

import re

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.order import by_factors
from tracekit.advise.waste.repeats import spans_of
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, in_phase, which

_BY_ROW = re.compile(r"^aten::(?:multinomial|sort|argsort|topk|kthvalue|median|(?:log)?cum\w+|searchsorted)$")
"""Calls that work on each row of one tensor alone, and whose first op, if a copy, writes out a view."""
_LEFT = outcomes(__file__)["of_one_row"]


def equal_rows(base: Baseline) -> Finding | None:
    """Find calls that first write out the view of one row that is expanded, and then do the same for each copy."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    begins = base.recorded.reads_repeated(ops) & which(ops.call, _BY_ROW.match)
    begins &= (ops.name == "aten::copy_") & (ops.category == "kernel")
    for place in np.flatnonzero(begins).tolist():
        later = (ops.call[place:] == ops.call[place]) & ~np.append(False, begins[place + 1 :])
        rows[place : place + int(np.argmin(np.append(later, False)))] = True
    change = lessened(rows, _LEFT)
    return Finding(rows, change, int(begins.sum()), way="equal-rows") if rows.any() else None


_TIMES, _VIEWS = 8, 2
"""Times as long as the op before it a join of views takes that repeats rows, and fewest such views."""
_OF_A_LAYER = re.compile(r"(?:ToCopy|Cat|Slice|View|Unsafe\w*|Addmm|Mm|Linear|T)Backward")


def layers_of_pairs(base: Baseline) -> Finding | None:
    """Find, in training, linear layers of expanded views that `cat` joins, as autograd shows, which sums the gradient
    of each. Of each row once, nothing of note remains but the sum of products, which takes as long as the next op."""
    ops, backward = base.ops, in_phase(base.ops, "backward")
    joins = np.flatnonzero(base.recorded.reads_repeated(ops) & (ops.name == "aten::cat") & ~backward).tolist()
    sums = [
        span for span in spans_of(which(ops.call, lambda call: "ExpandBackward" in call)) if span[1] - span[0] >= _VIEWS
    ]
    if ops.costed.any() or not joins or len(joins) != len(sums):
        return None
    factor, found, of_layer = np.ones(len(ops)), 0, which(ops.call, _OF_A_LAYER.search)
    for place, (begin, _) in zip(joins, reversed(sums), strict=True):
        part = ops.kernel_ns[place - 1] / ops.kernel_ns[place] if place else 1.0
        end = place + 1 + int(np.argmin(np.append(ops.call[place + 1 :] == "aten::linear", False)))
        if part * _TIMES <= 1 and products(ops)[place + 1 : end].any() and end < len(ops):
            back = begin - int(np.argmin(np.append(of_layer[:begin][::-1], False)))
            factor[place:end] = factor[back:begin] = part
            factor[place] = min(1.0, ops.kernel_ns[end] / ops.kernel_ns[place])
            found += 1
    return by_factors(factor, found, "rows-repeated") if found else None
