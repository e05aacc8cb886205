"""Detector of work on rows or matrices that are all the same: one that is expanded, copied, and worked on each time."""

import json
import re

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, which

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
