"""The roofline chart: kernels, ops and layers by arithmetic intensity (x) and achieved rate (y)."""

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import Analysis
from tracekit.reports.figures.arrows import arrows, moves, precisions_after
from tracekit.reports.figures.icicles import BOUND_NAMES, SYMBOLS, Figure, bound_title, colour, logarithmic, text
from tracekit.reports.words import count, duration, percent, quantity, significant

KINDS = {"kernels": "kernels", "ops": "ops", "layer_types": "types of layer", "layers": "layers"}
"""The tables whose rows are plotted, with their labels on the page."""
_NAMED = {"layer_types": "type", "layers": "path"}
_SMALLEST, _LARGEST = 7.0, 56.0
_MARGIN = 0.9
"""Space around the points, in decades."""
_SMALLEST_SHARE = 0.0005
_LOWEST = 1e-5
"""Rows below this fraction of the peak rate are not plotted, because they would stretch the axes by decades."""


def roofline(analysis: Analysis) -> Figure | None:
    """Return the Plotly traces for each table and each prediction, with one layout.

    Returns None if the GPU is unknown or no kernel has known FLOPs.
    """
    gpu = analysis.source.gpu
    points = {kind: placed(analysis, kind) for kind in KINDS}
    if gpu is None or points["kernels"].empty:
        return None
    precisions = _precisions(analysis.work, gpu) or [analysis.source.precision or "fp32"]
    moved = moves(analysis)
    then = _heights({*precisions, *precisions_after(moved, gpu)}, gpu)
    ends = [rows[name] for _, rows in moved.values() for name in ("before_intensity", "after_intensity")]
    intensity = pd.concat([each["intensity"] for each in points.values()] + ends)
    low = 10 ** (np.log10(intensity.min()) - _MARGIN)
    high = 10 ** (np.log10(max(intensity.max(), *map(gpu.ridge, then))) + _MARGIN)
    roofs = roofs_of(gpu, precisions, low, high)
    layout = {
        "xaxis": logarithmic("arithmetic intensity (FLOP/B)") | {"range": [np.log10(low), np.log10(high)]},
        "yaxis": logarithmic("achieved (TFLOP/s)"),
        "showlegend": False,
        "margin": {"l": 64, "r": 16, "t": 12, "b": 48},
        "height": 500,
    }
    kinds = {kind: [*roofs, *_marks(each)] for kind, each in points.items() if len(each)}
    return {"kinds": kinds, "layout": layout, "moves": _moves(moved, roofs_of(gpu, then, low, high))}


def _moves(moved: dict[str, tuple[str, pd.DataFrame]], roofs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the label, Plotly traces and table rows of each prediction."""
    return {
        key: {"label": label, "traces": [*roofs, *arrows(rows)], "rows": rows.index.tolist()}
        for key, (label, rows) in moved.items()
    }


def roofs_of(gpu: GPU, precisions: list[str], low: float, high: float) -> list[dict[str, Any]]:
    """Return the roofs as Plotly lines between the intensities `low` and `high` (FLOP/B)."""
    return [*_bandwidth(gpu, precisions, low), *(line for each in precisions for line in _roof(gpu, each, high))]


def placed(analysis: Analysis, kind: str = "kernels") -> pd.DataFrame:
    """Return the rows that are plotted, the most busy time first.

    `row` is the index in the table, `intensity` is in FLOP/B.
    """
    table, gpu = getattr(analysis, kind), analysis.source.gpu
    rows = table.rename(columns={_NAMED.get(kind, "name"): "name"}).assign(row=np.arange(len(table)))
    counted = rows[(rows["flops"] > 0) & (rows["bytes"] > 0) & (rows["duration_ns"] > 0)]
    peak = gpu.peak_flops(analysis.source.precision or "fp32") if gpu else 0.0
    fast = 1e9 * counted["flops"] > _LOWEST * peak * counted["duration_ns"]
    seen = counted[fast & (counted["share"] >= _SMALLEST_SHARE)]
    seen = seen.assign(intensity=seen["flops"] / seen["bytes"])
    return seen.sort_values("busy_ns", ascending=False, kind="stable")


def _precisions(work: pd.DataFrame, gpu: GPU) -> list[str]:
    """Return the precisions of the arithmetic, one for each distinct peak."""
    return _heights(set(work.loc[work["flops"] > 0, "precision"].astype(str)), gpu)


def _heights(precisions: set[str], gpu: GPU) -> list[str]:
    return list({gpu.peak_flops(name): name for name in sorted(precisions, reverse=True) if name}.values())


def _bandwidth(gpu: GPU, precisions: list[str], low: float) -> list[dict[str, Any]]:
    sustained = gpu.bandwidth * gpu.copy_efficiency
    label = f"{significant(gpu.bandwidth_gbs)} GB/s (sustained {significant(sustained / 1e9)})"
    datasheet_ridge = max(map(gpu.ridge, precisions))
    sustained_ridge = max(gpu.sustained_flops(each) for each in precisions) / sustained
    return [
        _line(_slope(sustained, low, sustained_ridge), "", "dot"),
        _line(_slope(gpu.bandwidth, low, datasheet_ridge), label, "solid"),
    ]


def _slope(bandwidth: float, low: float, ridge: float) -> tuple[list[float], list[float]]:
    x = [low, low * (ridge / low) ** 0.62, ridge]
    return x, [each * bandwidth / 1e12 for each in x]


def _roof(gpu: GPU, precision: str, high: float) -> list[dict[str, Any]]:
    peak, sustained = gpu.peak_flops(precision), gpu.sustained_flops(precision)
    label = f"{precision} {significant(peak / 1e12)} TFLOP/s (sustained {significant(sustained / 1e12)})"
    ridge, lower_ridge = gpu.ridge(precision), sustained / gpu.bandwidth / gpu.copy_efficiency
    return [
        _line(([lower_ridge, high], [sustained / 1e12] * 2), "", "dot"),
        _line(([ridge, high], [peak / 1e12] * 2), label, "solid"),
    ]


def _line(points: tuple[list[float], list[float]], label: str, dash: str) -> dict[str, Any]:
    """Return a line with its label above and left of the second point."""
    x, y = points
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": x,
        "y": y,
        "text": ["", label, *[""] * (len(x) - 2)],
        "textposition": "top left",
        "textfont": {"color": "--soft", "size": 11},
        "line": {"color": "--ink" if dash == "solid" else "--soft", "width": 1.25, "dash": dash},
        "hoverinfo": "skip",
    }


def _marks(points: pd.DataFrame) -> list[dict[str, Any]]:
    own = points["own_bound"]
    return [_dots(points[own == name], name) for name in BOUND_NAMES if (own == name).any()]


def _dots(points: pd.DataFrame, bound: str) -> dict[str, Any]:
    rate = points["flops"] / points["duration_ns"] / 1000
    size = np.clip(_LARGEST * np.sqrt(points["share"]), _SMALLEST, None)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": bound_title(bound),
        "x": _short(points["intensity"]),
        "y": _short(rate),
        "customdata": [_hover(row) for row in points.itertuples()],
        "marker": {
            "size": _short(size),
            "symbol": SYMBOLS[bound],
            "color": colour(bound),
            "opacity": 0.8,
            "line": {"color": "--paper", "width": 1},
        },
        "hovertemplate": "<b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
    }


def _short(values: "pd.Series[float]") -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _hover(point: Any) -> list[Any]:
    rate = quantity(1e9 * point.flops / point.duration_ns, "FLOP/s")
    roof = f", {percent(point.roof_fraction)} of its roof" if "roof_fraction" in point._fields else ""
    lines = [
        f"{duration(point.duration_ns / 1000)} in {count(point.calls)} calls, {percent(point.share)} of the busy time",
        f"{significant(point.intensity)} FLOP/B, {rate}{roof}",
    ]
    return [point.row, text(str(point.name), 100), "<br>".join(lines)]
