"""Kernels under the roofs of their GPU: arithmetic intensity across, achieved rate up."""

from typing import Any

import numpy as np
import pandas as pd

from analyzers.hardware import GPU
from analyzers.results import Analysis
from reports.figures.style import BOUND_NAMES, SYMBOLS, Figure, bound_title, colour, logarithmic, text
from reports.numbers import duration, percent, quantity, significant

_SMALLEST, _LARGEST = 7.0, 56.0
_MARGIN = 0.9
"""Part of a decade left free around the points."""
_SMALLEST_SHARE = 0.0005
_LOWEST = 1e-5
"""Kernels of a smaller share of the time, or of the peak, would stretch the axes by decades."""


def roofline(analysis: Analysis) -> Figure | None:
    """None without a known GPU, or without a kernel whose FLOPs are known."""
    gpu = analysis.source.gpu
    points = placed(analysis)
    if gpu is None or points.empty:
        return None
    precisions = _precisions(analysis.work, gpu) or [analysis.source.precision or "fp32"]
    low = 10 ** (np.log10(points["intensity"].min()) - _MARGIN)
    high = 10 ** (np.log10(max(points["intensity"].max(), *map(gpu.ridge, precisions))) + _MARGIN)
    traces = [_bandwidth(gpu, precisions, low), *(_roof(gpu, each, high) for each in precisions)]
    traces += [_sustained(gpu, each, high) for each in precisions]
    traces += [
        _dots(points[points["bound"] == bound], bound) for bound in BOUND_NAMES if (points["bound"] == bound).any()
    ]
    layout = {
        "xaxis": logarithmic("arithmetic intensity (FLOP/B)") | {"range": [np.log10(low), np.log10(high)]},
        "yaxis": logarithmic("achieved (TFLOP/s)"),
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 64, "r": 16, "t": 40, "b": 48},
        "height": 500,
    }
    return {"data": traces, "layout": layout}


def placed(analysis: Analysis) -> pd.DataFrame:
    """The kernels that can stand on the plot and be seen there, with their row; those of most time first."""
    kernels, gpu = analysis.kernels.assign(row=np.arange(len(analysis.kernels))), analysis.source.gpu
    counted = (kernels["intensity"] > 0) & (kernels["flops"] > 0) & (kernels["gpu_ns"] > 0)
    peak = gpu.peak_flops(analysis.source.precision or "fp32") if gpu else 0.0
    fast = 1e9 * kernels["flops"] > _LOWEST * peak * kernels["gpu_ns"]
    return kernels[counted & fast & (kernels["share"] >= _SMALLEST_SHARE)].sort_values("gpu_ns", ascending=False)


def _precisions(work: pd.DataFrame, gpu: GPU) -> list[str]:
    """Those that did arithmetic, one for each height of the roof."""
    names = work.loc[work["flops"] > 0, "precision"].astype(str).unique()
    return list({gpu.peak_flops(name): name for name in sorted(names, reverse=True) if name}.values())


def _bandwidth(gpu: GPU, precisions: list[str], low: float) -> dict[str, Any]:
    ridge = max(map(gpu.ridge, precisions))
    x = [low, low * (ridge / low) ** 0.8, ridge]
    y = [each * gpu.bandwidth / 1e12 for each in x]
    return _line(x, y, f"{significant(gpu.bandwidth_gbs)} GB/s", "solid", "top left")


def _roof(gpu: GPU, precision: str, high: float) -> dict[str, Any]:
    peak = gpu.peak_flops(precision) / 1e12
    label = f"{precision} {significant(peak)} TFLOP/s"
    ridge = gpu.ridge(precision)
    return _line([ridge, high], [peak] * 2, label, "solid", "top left")


def _sustained(gpu: GPU, precision: str, high: float) -> dict[str, Any]:
    rate = gpu.sustained_flops(precision)
    bandwidth = gpu.bandwidth * gpu.copy_efficiency
    label = f"{precision} sustained {significant(rate / 1e12)}"
    ridge = rate / bandwidth
    return _line([ridge, high], [rate / 1e12] * 2, label, "dot", "bottom left")


def _line(x: list[float], y: list[float], label: str, dash: str, side: str) -> dict[str, Any]:
    """The label stands at the second point."""
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": x,
        "y": y,
        "text": ["", label, *[""] * (len(x) - 2)],
        "textposition": side,
        "textfont": {"color": "--soft", "size": 11},
        "line": {"color": "--ink" if dash == "solid" else "--soft", "width": 1.25, "dash": dash},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _dots(points: pd.DataFrame, bound: str) -> dict[str, Any]:
    rate = points["flops"] / points["gpu_ns"] / 1000
    size = np.clip(_LARGEST * np.sqrt(points["share"]), _SMALLEST, None)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": bound_title(bound),
        "x": points["intensity"].tolist(),
        "y": rate.tolist(),
        "customdata": [_told(row) for row in points.itertuples()],
        "marker": {
            "size": size.tolist(),
            "symbol": SYMBOLS[bound],
            "color": colour(bound),
            "opacity": 0.8,
            "line": {"color": "--paper", "width": 1},
        },
        "hovertemplate": "<b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
    }


def _told(kernel: Any) -> list[Any]:
    rate = quantity(1e9 * kernel.flops / kernel.gpu_ns, "FLOP/s")
    lines = [
        f"{duration(kernel.gpu_ns / 1000)} in {kernel.calls:,} calls, {percent(kernel.share)} of the busy time",
        f"{significant(kernel.intensity)} FLOP/B, {rate}, {percent(kernel.roof_fraction)} of its roof",
    ]
    return [kernel.row, text(str(kernel.name), 100), "<br>".join(lines)]
