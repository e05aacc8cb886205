"""Bars on the lanes of a timeline: pieces of work, and the blocks of the model that they belong to."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.reports.figures.style import text
from tracekit.reports.numbers import duration

_BREAK = float("nan")


def bars(rows: pd.DataFrame, height: npt.ArrayLike, begin: int, names: list[str]) -> dict[str, Any]:
    """Return one Plotly trace that draws every row as a bar.

    A bar lasts from `start_ns` for `duration_ns`, in ms after `begin`, at the `height` of its row. `names` are HTML and
    appear on hover.
    """
    start = (rows["start_ns"].to_numpy() - begin) / 1e6
    length = rows["duration_ns"].to_numpy() / 1e6
    level = np.broadcast_to(np.asarray(height, dtype=float), len(rows))
    hover = [f"<b>{name}</b><br>{duration(ns / 1000)}" for name, ns in zip(names, rows["duration_ns"], strict=True)]
    gap = np.full(len(rows), _BREAK)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _rounded(np.column_stack([start, start + length / 2, start + length, gap])),
        "y": _rounded(np.column_stack([level, level, level, gap])),
        "text": np.repeat(np.array(hover, dtype=object), 4).tolist(),
        "hovertemplate": "%{text}<extra></extra>",
    }


def thick(colour: str, width: int) -> dict[str, Any]:
    """Return a line style for bars, without simplification: Plotly would leave out bars shorter than a pixel."""
    return {"color": colour, "width": width, "simplify": False}


def blocks(work: pd.DataFrame, layers: pd.DataFrame, begin: int, height: int) -> list[dict[str, Any]]:
    """Return bars for runs of work in one block of the model, in two alternating colours.

    Blocks are the layers at the shallowest depth that has several.
    """
    block = _ancestors(layers)[work["layer"].to_numpy()] if len(layers) else np.full(len(work), -1)
    block = np.where(work["layer"].to_numpy() >= 0, block, -1)
    change = np.flatnonzero(np.r_[True, block[1:] != block[:-1]])
    runs = work.iloc[change]
    end = np.maximum.reduceat((work["start_ns"] + work["duration_ns"]).to_numpy(), change)
    spans = runs.assign(duration_ns=end - runs["start_ns"])[block[change] >= 0]
    names = [text(str(layers["path"].iloc[row]), 60) for row in block[change] if row >= 0]
    looks = ({"color": "--band-even", "width": 18}, {"color": "--band-odd", "width": 18})
    halves = ((bars(spans.iloc[odd::2], height, begin, names[odd::2]), line) for odd, line in enumerate(looks))
    return [drawn | {"name": "layer", "line": line} for drawn, line in halves if drawn["x"]]


def _ancestors(layers: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return, for each layer, the row of its ancestor at the blocks' depth; for a layer above that depth, its own
    row."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    counts = np.bincount(depth[layers["busy_ns"].to_numpy() > 0], minlength=1)
    level = int(np.argmax(counts >= 4)) if (counts >= 4).any() else int(depth.max())
    ancestor = np.arange(len(layers))
    for _ in range(int(depth.max())):
        deep = depth[ancestor] > level
        ancestor = np.where(deep, parent[ancestor], ancestor)
    return ancestor


def _rounded(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Return the values in row order, rounded to nanoseconds; a break between bars is None."""
    return [None if value != value else value for value in np.round(values, 6).ravel().tolist()]
