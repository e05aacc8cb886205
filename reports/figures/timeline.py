"""One step on the device: layers, streams and gaps, and when the host launched."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.results import Analysis
from reports.figures.style import BOUND_NAMES, Figure, bound_title, colour, text
from reports.numbers import duration

LIMIT = 5_000
"""More pieces than this are slow to draw."""
_BREAK = float("nan")


def timeline(analysis: Analysis) -> tuple[Figure, str] | None:
    """The figure of the step of median length, and a note on what it shows. None without device work."""
    steps = analysis.timeline.steps
    if steps.empty or analysis.work.empty:
        return None
    chosen = steps.sort_values("wall_ns").iloc[len(steps) // 2]
    work = analysis.work[analysis.work["step"] == chosen["step"]]
    work = work if len(work) else analysis.work
    shown = work.nlargest(LIMIT, "duration_ns").sort_index()
    begin = min(int(chosen["start_ns"]), int(work["start_ns"].min()))
    lanes = _lanes(shown)
    traces = [
        *_work(shown, lanes, begin),
        _gaps(shown, lanes, begin),
        *_blocks(shown, analysis.layers, begin, len(lanes)),
    ]
    traces.append(_launches(shown, begin))
    names = ["host launches", *lanes, "layers"]
    layout = {
        "xaxis": {"title": {"text": "time in the step (ms)"}, "rangemode": "tozero", "zeroline": False},
        "yaxis": {"tickvals": list(range(len(names))), "ticktext": names, "fixedrange": True, "zeroline": False,
                  "range": [-0.6, len(names) - 0.4], "showgrid": False},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 110, "r": 16, "t": 40, "b": 48},
        "hoverdistance": 30,
        "height": 150 + 56 * len(names),
    }  # fmt: skip
    return {"data": traces, "layout": layout}, _note(int(chosen["step"]), len(steps), work, shown)


def _note(step: int, steps: int, work: pd.DataFrame, shown: pd.DataFrame) -> str:
    which = f"Step {step}, of median length among {steps}." if steps > 1 else "The step recorded."
    if len(shown) == len(work):
        return which
    part = shown["busy_ns"].sum() / max(1, work["busy_ns"].sum())
    return f"{which} Drawn: the {len(shown):,} longest of {len(work):,} pieces of work, {part:.1%} of the busy time."


def _lanes(work: pd.DataFrame) -> dict[str, int]:
    """Lane name -> height, one for each device and stream, from 1 up."""
    names = sorted(set(_lane_names(work)), reverse=True)
    return {name: height for height, name in enumerate(names, start=1)}


def _lane_names(work: pd.DataFrame) -> list[str]:
    several = work["device"].nunique() > 1
    pairs = zip(work["device"], work["stream"], strict=True)
    return [_lane_name(device, stream, several) for device, stream in pairs]


def _lane_name(device: int, stream: int, several: bool) -> str:
    place = "CPU" if device < 0 else f"GPU {device}" if several else "GPU"
    return f"{place}, stream {stream}" if stream >= 0 and device >= 0 else place


def _work(work: pd.DataFrame, lanes: dict[str, int], begin: int) -> list[dict[str, Any]]:
    height = pd.Series(_lane_names(work), index=work.index).map(lanes)
    traces = []
    for bound in BOUND_NAMES:
        mine = work["bound"] == bound
        if mine.any():
            bars = _bars(work[mine], height[mine], begin, [text(str(name)) for name in work.loc[mine, "name"]])
            traces.append(bars | {"name": bound_title(bound), "line": _thick(bound, 26)})
    return traces


def _gaps(work: pd.DataFrame, lanes: dict[str, int], begin: int) -> dict[str, Any]:
    idle = work[work["gap_ns"] > 0]
    height = pd.Series(_lane_names(idle), index=idle.index, dtype=object).map(lanes)
    before = idle.assign(start_ns=idle["start_ns"] - idle["gap_ns"], duration_ns=idle["gap_ns"])
    bars = _bars(before, height, begin, ["idle"] * len(idle))
    return bars | {"name": "idle before the next launch", "line": _thick("launch", 3)}


def _thick(bound: str, width: int) -> dict[str, Any]:
    """Plotly would leave out bars shorter than a pixel, unless told not to simplify."""
    return {"color": colour(bound), "width": width, "simplify": False}


def _bars(rows: pd.DataFrame, height: "pd.Series[Any]", begin: int, names: list[str]) -> dict[str, Any]:
    """Thick lines: one path for thousands of bars. The middle of a bar answers the pointer, too."""
    start = (rows["start_ns"].to_numpy() - begin) / 1e6
    length = rows["duration_ns"].to_numpy() / 1e6
    told = [f"<b>{name}</b><br>{duration(ns / 1000)}" for name, ns in zip(names, rows["duration_ns"], strict=True)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _rounded(np.column_stack([start, start + length / 2, start + length, np.full(len(rows), _BREAK)])),
        "y": _rounded(np.column_stack([height.astype(float)] * 3 + [np.full(len(rows), _BREAK)])),
        "text": np.repeat(np.array(told, dtype=object), 4).tolist(),
        "hovertemplate": "%{text}<extra></extra>",
    }


def _launches(work: pd.DataFrame, begin: int) -> dict[str, Any]:
    known = work[work["delay_ns"] >= 0]
    at = (known["start_ns"] - known["delay_ns"] - begin).to_numpy() / 1e6
    half = np.full(len(known), 0.22)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "launch",
        "x": _rounded(np.column_stack([at, at, np.full(len(known), _BREAK)])),
        "y": _rounded(np.column_stack([-half, half, np.full(len(known), _BREAK)])),
        "line": {"color": "--soft", "width": 1},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _blocks(work: pd.DataFrame, layers: pd.DataFrame, begin: int, lanes: int) -> list[dict[str, Any]]:
    """Runs of work in one block of the model (the shallowest layers of which there are several), alternating."""
    block = _ancestors(layers)[work["layer"].to_numpy()] if len(layers) else np.full(len(work), -1)
    block = np.where(work["layer"].to_numpy() >= 0, block, -1)
    change = np.flatnonzero(np.r_[True, block[1:] != block[:-1]])
    runs = work.iloc[change]
    end = np.maximum.reduceat((work["start_ns"] + work["duration_ns"]).to_numpy(), change)
    spans = runs.assign(duration_ns=end - runs["start_ns"])[block[change] >= 0]
    names = [text(str(layers["path"].iloc[row]), 60) for row in block[change] if row >= 0]
    traces = []
    for odd in (0, 1):
        half = spans.iloc[odd::2]
        height = pd.Series(float(lanes + 1), index=half.index)
        line = {"color": "--band-odd" if odd else "--band-even", "width": 18}
        traces.append(_bars(half, height, begin, names[odd::2]) | {"name": "layer", "line": line, "showlegend": False})
    return traces


def _ancestors(layers: pd.DataFrame) -> npt.NDArray[np.int64]:
    """For each layer, the row of its ancestor at the depth of the blocks (or itself, when above)."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    counts = np.bincount(depth[layers["gpu_ns"].to_numpy() > 0], minlength=1)
    level = int(np.argmax(counts >= 4)) if (counts >= 4).any() else int(depth.max())
    ancestor = np.arange(len(layers))
    for _ in range(int(depth.max())):
        deep = depth[ancestor] > level
        ancestor = np.where(deep, parent[ancestor], ancestor)
    return ancestor


def _rounded(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Row by row, to the nanosecond; breaks are None."""
    return [None if value != value else value for value in np.round(values, 6).ravel().tolist()]
