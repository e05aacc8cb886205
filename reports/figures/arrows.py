"""Arrows on the roofline: parts of a step before and after a prediction."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.core import tables
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import Analysis
from tracekit.reports.figures.icicles import text
from tracekit.reports.words import duration, printable, quantity, significant

_NAMED = 6
"""The number of labelled parts: those with the most time."""
_SMALLEST, _LARGEST = 8.0, 44.0
_NOTABLE = 0.002
"""The smallest fraction of the step's time, before or after, that is drawn."""


def moves(analysis: Analysis) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return, for each prediction that has arrows, its label and the rows to draw."""
    drawn = {key: (label, _drawn(rows)) for key, (label, rows) in moves_by_card(analysis).items()}
    return {key: (label, rows) for key, (label, rows) in drawn.items() if len(rows)}


def _drawn(rows: pd.DataFrame) -> pd.DataFrame:
    placed = rows["before_rate"].notna() & rows["before_intensity"].notna()
    long = rows[["before_ns", "after_ns"]].max(axis=1) > _NOTABLE * rows["before_ns"].sum()
    return rows[placed & long]


def arrows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return Plotly traces: the arrows, the marks before, and the marks after. Rates are in TFLOP/s."""
    after = rows[rows["after_rate"].notna()]
    return [_ways(after), _marks(rows, "before"), _marks(after, "after")]


def precisions_after(moved: dict[str, tuple[str, pd.DataFrame]], gpu: GPU) -> set[str]:
    """Return the precisions of arithmetic after the predictions for which `gpu` has a peak."""
    names = {name for _, rows in moved.values() for name in rows["after_precision"]}
    return {name for name in names if name and gpu.peak_flops(name)}


def _ways(rows: pd.DataFrame) -> dict[str, Any]:
    """Return lines from before to after, with an arrowhead where a part moves visibly."""
    x = rows[["before_intensity", "after_intensity"]].to_numpy()
    y = rows[["before_rate", "after_rate"]].to_numpy() / 1e3
    moved = (np.abs(np.log10(x[:, 1] / x[:, 0])) + np.abs(np.log10(y[:, 1] / y[:, 0]))) > 0.02
    sizes = [size for each in moved for size in (0, 13 if each else 0, 0)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": _broken(x),
        "y": _broken(y),
        "line": {"color": "--modelled", "width": 1.5, "dash": "dash"},
        "marker": {"symbol": "arrow", "angleref": "previous", "size": sizes, "color": "--modelled", "opacity": 1},
        "hoverinfo": "skip",
    }


def _broken(ends: "np.ndarray[Any, np.dtype[np.float64]]") -> list[float | None]:
    return [value for begin, end in ends.tolist() for value in (_short(begin), _short(end), None)]


def _marks(rows: pd.DataFrame, when: str) -> dict[str, Any]:
    predicted = when == "after"
    sizes = np.clip(_LARGEST * np.sqrt(rows[f"{when}_ns"] / max(1, rows["before_ns"].sum())), _SMALLEST, _LARGEST)
    named = set(rows["before_ns"].nlargest(_NAMED).index) if not predicted else set()
    colour = "--modelled" if predicted else "--ink"
    return {
        "type": "scatter",
        "mode": "markers" if predicted else "markers+text",
        "name": "predicted" if predicted else "as it is",
        "x": [_short(value) for value in rows[f"{when}_intensity"]],
        "y": [_short(value / 1e3) for value in rows[f"{when}_rate"]],
        "text": [text(str(part), 24) if index in named else "" for index, part in rows["part"].items()],
        "textposition": "bottom center",
        "textfont": {"color": "--ink", "size": 11},
        "customdata": [_hover(row) for row in rows.itertuples()],
        "marker": {
            "size": [_short(size) for size in sizes],
            "symbol": "circle" if predicted else "circle-open",
            "color": colour,
            "opacity": 0.45 if predicted else 0.9,
            "line": {"color": colour, "width": 1.5},
        },
        "hovertemplate": "<b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
    }


def _short(value: float) -> float | None:
    """Return the value with four digits; None for a part without work before or after."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _hover(row: Any) -> list[Any]:
    times = f"{duration(row.before_ns / 1e3)} → {duration(row.after_ns / 1e3)} per step"
    if not row.after_rate > 0:
        return [row.Index, text(str(row.part), 100), f"{times}<br>its work moves to other parts"]
    rates = f"{quantity(1e9 * row.before_rate, 'FLOP/s')} → {quantity(1e9 * row.after_rate, 'FLOP/s')}"
    intensity = f"{significant(row.before_intensity)} → {significant(row.after_intensity)} FLOP/B"
    return [row.Index, text(str(row.part), 100), f"{times}<br>{intensity}, {rates}"]


MOVES = tables(__file__)["roofline_moves"]
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
            **{f"{when}_intensity": _quotient(rows[f"{when}_flops"], rows[f"{when}_bytes"]) for when in _WHEN},
            **{f"{when}_rate": _quotient(rows[f"{when}_flops"], rows[f"{when}_ns"]) for when in _WHEN},
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


def _quotient(work: "pd.Series[float]", by: "pd.Series[float]") -> "pd.Series[float]":
    """Return the quotient; NaN if either value is not positive."""
    return (work.where(work > 0) / by.where(by > 0)).astype("float64")


def _precision(rows: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    before, after = rows["before_precision"], rows["after_precision"]
    same = (before == after) | (after == "") | (before == "")
    return np.where(same, before.where(before != "", after), before + " → " + after).astype(object)
