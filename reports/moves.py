"""Predicted changes of a step's parts on the roofline, as a table and by card."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tracekit.analyzers.results import Analysis
from tracekit.analyzers.schema import Column, Table
from tracekit.reports.names import printable

MOVES = Table(
    "roofline_moves",
    "Parts of a step on the roofline before and after a prediction.",
    Column("part", "object", "", "class of the layer, for its own work; class of op if the trace names no layers"),
    Column("prediction", "object", "", "applied optimizations; a number: that step of the plan, after all before it"),
    Column("before_ns", "int64", "ns", "busy time of a step before"),
    Column("after_ns", "int64", "ns", "predicted busy time of a step after; 0: other parts do its work"),
    Column("before_intensity", "float64", "FLOP/B", "arithmetic intensity before"),
    Column("after_intensity", "float64", "FLOP/B", "arithmetic intensity after"),
    Column("before_rate", "float64", "GFLOP/s", "achieved before"),
    Column("after_rate", "float64", "GFLOP/s", "predicted rate after"),
    Column("precision", "object", "", "precision of most of the arithmetic, before → after"),
)
_MOVED = 0.01
"""Smallest change, as a fraction of the step's time in either direction, that counts as a move."""


def moves_table(analysis: Analysis) -> pd.DataFrame:
    """Return MOVES for the predictions that change something, in the order of the cards, then of time."""
    return _moves(analysis)[[column.name for column in MOVES.columns]]


def moves_by_card(analysis: Analysis) -> dict[str, tuple[str, pd.DataFrame]]:
    """Map the applied optimizations to (label, rows of `moves_table`)."""
    rows = _moves(analysis)
    return {str(key): (group["prediction"].iloc[0], group) for key, group in rows.groupby("applied", sort=False)}


def _moves(analysis: Analysis) -> pd.DataFrame:
    labels, work = dict(_labels(analysis)), analysis.predicted_work
    groups = [work[work["applied"] == key] for key in labels]
    changed = [group for group in groups if _changes(group)]
    rows = pd.concat([*changed, work.head(0)], ignore_index=True)
    table = MOVES.frame(
        {
            "part": rows["part"],
            "prediction": rows["applied"].map(labels),
            "precision": _precision(rows),
            **{name: rows[name] for name in ("before_ns", "after_ns")},
            **{f"{when}_intensity": _over(rows[f"{when}_flops"], rows[f"{when}_bytes"]) for when in _WHEN},
            **{f"{when}_rate": _over(rows[f"{when}_flops"], rows[f"{when}_ns"]) for when in _WHEN},
        }
    )
    return table.assign(applied=rows["applied"], after_precision=rows["after_precision"])


_WHEN = ("before", "after")


def _labels(analysis: Analysis) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    for number, step in enumerate(analysis.plan, 1):
        names.append(step.name)
        yield "+".join(names), printable(f"{number}. {step.title}" if len(analysis.plan) > 1 else step.title)
    first = analysis.plan[0].name if analysis.plan else ""
    for advice in analysis.recommendations:
        if advice.id != first:
            yield advice.id, printable(advice.title)


def _changes(rows: pd.DataFrame) -> bool:
    """Return whether the time of any part changes by more than `_MOVED` of the total."""
    total = max(1, int(rows["before_ns"].sum()))
    moved = (rows["after_ns"] - rows["before_ns"]).abs() > _MOVED * total
    return bool(moved.any())


def _over(work: "pd.Series[float]", by: "pd.Series[float]") -> "pd.Series[float]":
    """Return the quotient; NaN if either value is not positive."""
    return (work.where(work > 0) / by.where(by > 0)).astype("float64")


def _precision(rows: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    before, after = rows["before_precision"], rows["after_precision"]
    same = (before == after) | (after == "") | (before == "")
    return np.where(same, before.where(before != "", after), before + " → " + after).astype(object)
