"""Arrows on the roofline: parts of a step before and after a prediction."""

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.results import Analysis
from tracekit.reports.figures.style import text
from tracekit.reports.moves import moves_by_card
from tracekit.reports.numbers import duration, quantity, significant

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


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _hover(row: Any) -> list[Any]:
    times = f"{duration(row.before_ns / 1e3)} → {duration(row.after_ns / 1e3)} per step"
    if not row.after_rate > 0:
        return [row.Index, text(str(row.part), 100), f"{times}<br>its work moves to other parts"]
    rates = f"{quantity(1e9 * row.before_rate, 'FLOP/s')} → {quantity(1e9 * row.after_rate, 'FLOP/s')}"
    intensity = f"{significant(row.before_intensity)} → {significant(row.after_intensity)} FLOP/B"
    return [row.Index, text(str(row.part), 100), f"{times}<br>{intensity}, {rates}"]
