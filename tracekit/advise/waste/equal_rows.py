"""Detectors of work that expanded views repeat: on copies of one row or matrix, and in layers of all pairs."""

import json
import re

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.order import by_factors
from tracekit.advise.waste.repeats import spans_of
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, which

_BY_ROW = re.compile(r"^aten::(?:multinomial|sort|argsort|topk|kthvalue|median|(?:log)?cum\w+|searchsorted)$")
"""Calls that work on each row of one tensor alone, and whose first op, if a copy, writes out a view."""
_KNOWN = outcomes(__file__)
_LEFT = _KNOWN["of_one_row"]


_OF_MATRICES = re.compile(
    r"^aten::(?:linalg_(?:solve|inv|cholesky|lu|ldl|eig|svd|qr|pinv|matrix_exp)\w*|inverse|cholesky)$"
)
"""Calls that work on each matrix of a batch alone."""
_ONE_MATRIX = _KNOWN["of_one_matrix"]


def equal_rows(base: Baseline) -> Finding | None:
    """Find calls that first write out the view of one row or matrix that is expanded, and then do the same for each
    copy. The others of a solver's tensors, as its right sides, may be expanded: by strides, it is the matrix."""
    ops, written = base.ops, base.recorded.reads_repeated(base.ops)
    written &= (ops.name == "aten::copy_") & (ops.category == "kernel")
    by_row, by_matrix = (written & which(ops.call, calls.match) for calls in (_BY_ROW, _OF_MATRICES))
    by_matrix &= _of_one(base, by_matrix)
    rows, matrices = (_calls_of(ops, begins) for begins in (by_row, by_matrix))
    kept = ~matrices | by_matrix
    shorter = (lessened(rows, _LEFT), lessened(matrices, _ONE_MATRIX))

    def change(run: Baseline, outcome: Outcome) -> OpList:
        after = shorter[1](replace(run, ops=shorter[0](run, outcome)), outcome)
        return after[kept].assign(kernel_ns=np.add.reduceat(after.kernel_ns, np.flatnonzero(kept)))

    way = "one-matrix" if by_matrix.any() else "equal-rows"
    return (
        Finding(rows | matrices, change, int((by_row | by_matrix).sum()), way=way) if (rows | matrices).any() else None
    )


def _calls_of(ops: OpList, begins: Rows) -> Rows:
    """Select the ops of the calls that begin at these."""
    rows = np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(begins).tolist():
        later = (ops.call[place:] == ops.call[place]) & ~np.append(False, begins[place + 1 :])
        rows[place : place + int(np.argmin(np.append(later, False)))] = True
    return rows


def _of_one(base: Baseline, copies: Rows) -> Rows:
    """Select the copies that read the same matrix again and again, by strides of 0."""
    one = np.zeros(len(base.ops), dtype=bool)
    for place in np.flatnonzero(copies).tolist():
        given = base.recorded.strides_of(base.ops[place : place + 1])[0]
        read = json.loads(given[1])[1:2] if given else []
        one[place] = bool(read) and len(read[0]) > 2 and not any(read[0][:-2])
    return one


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
