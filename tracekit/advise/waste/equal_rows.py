"""Detector of work on rows that are all the same: a row that is expanded, copied, and worked on row by row."""

import re

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, which

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
