"""Bars on the lanes of a timeline: thousands of them as one broken line."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.reports.numbers import duration

_BREAK = float("nan")


def bars(rows: pd.DataFrame, height: npt.ArrayLike, begin: int, names: list[str]) -> dict[str, Any]:
    """A trace of the rows' spans (`start_ns`, `duration_ns`) in ms after `begin`, at those heights.

    The middle of a bar answers the pointer, too. `names` are HTML.
    """
    start = (rows["start_ns"].to_numpy() - begin) / 1e6
    length = rows["duration_ns"].to_numpy() / 1e6
    level = np.broadcast_to(np.asarray(height, dtype=float), len(rows))
    told = [f"<b>{name}</b><br>{duration(ns / 1000)}" for name, ns in zip(names, rows["duration_ns"], strict=True)]
    gap = np.full(len(rows), _BREAK)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _rounded(np.column_stack([start, start + length / 2, start + length, gap])),
        "y": _rounded(np.column_stack([level, level, level, gap])),
        "text": np.repeat(np.array(told, dtype=object), 4).tolist(),
        "hovertemplate": "%{text}<extra></extra>",
    }


def thick(colour: str, width: int) -> dict[str, Any]:
    """Plotly would leave out bars shorter than a pixel, unless told not to simplify."""
    return {"color": colour, "width": width, "simplify": False}


def _rounded(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Row by row, to the nanosecond; breaks are None."""
    return [None if value != value else value for value in np.round(values, 6).ravel().tolist()]
