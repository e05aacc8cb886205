"""The tree of layers, down to their kernels, as wide as their time."""

import numpy as np
import pandas as pd

from analyzers.results import Analysis
from reports.figures.style import Figure, colour, text
from reports.names import inside
from reports.numbers import duration, percent

LIMIT = 2_500
"""More boxes than this are slow to draw, and the smallest are too thin to see."""


def icicle(analysis: Analysis) -> tuple[Figure, int]:
    """The figure, and how many boxes were left out for being too thin."""
    nodes = pd.concat([_layers(analysis.layers), _leaves(analysis.work, analysis.layers)], ignore_index=True)
    nodes = _under_one_root(nodes[nodes["time"] > 0])
    kept = nodes.nlargest(LIMIT, "time", keep="first").sort_index()
    total = max(1, analysis.timeline.busy_ns)
    shares = [percent(time / total) for time in kept["time"]]
    times = [duration(time / 1000) for time in kept["time"]]
    trace = {
        "type": "icicle",
        "ids": kept["id"].tolist(),
        "parents": kept["above"].tolist(),
        "values": kept["time"].tolist(),
        "labels": [text(name, 40) for name in kept["label"]],
        "text": shares,
        "customdata": [[text(name, 160), time] for name, time in zip(kept["name"], times, strict=True)],
        "branchvalues": "total",
        "tiling": {"orientation": "v"},
        "texttemplate": "%{label}<br>%{text}",
        "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}, %{text}<extra></extra>",
        "marker": {"colors": [colour(bound) for bound in kept["bound"]], "line": {"color": "--paper", "width": 1}},
        "textfont": {"color": [f"--on-{bound or 'unknown'}" for bound in kept["bound"]]},
        "pathbar": {"visible": True, "thickness": 22},
        "leaf": {"opacity": 1},
        "sort": False,
    }
    return {"data": [trace], "layout": {"margin": {"l": 0, "r": 0, "t": 26, "b": 0}, "height": 440}}, len(nodes) - len(
        kept
    )


def _under_one_root(nodes: pd.DataFrame) -> pd.DataFrame:
    roots = nodes["above"] == ""
    if roots.sum() < 2:
        return nodes
    run = {
        "id": "run",
        "above": "",
        "label": "the run",
        "name": "the run",
        "time": nodes.loc[roots, "time"].sum(),
        "bound": "",
    }
    nodes = nodes.assign(above=nodes["above"].mask(roots, "run"))
    return pd.concat([pd.DataFrame([run]), nodes], ignore_index=True)


def _layers(layers: pd.DataFrame) -> pd.DataFrame:
    path, parent = layers["path"].astype(str), layers["parent"].to_numpy()
    above = np.where(parent >= 0, path.to_numpy()[np.maximum(parent, 0)] if len(layers) else "", "")
    label = [inside(name, outer) for name, outer in zip(path, above, strict=True)]
    return pd.DataFrame(
        {
            "id": [f"layer-{row}" for row in range(len(layers))],
            "above": [f"layer-{row}" if row >= 0 else "" for row in parent],
            "label": label,
            "name": path + " (" + layers["type"].astype(str) + ")",
            "time": layers["gpu_ns"],
            "bound": layers["bound"],
        }
    )


def _leaves(work: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """The kernels of each layer, in the colour of most of their time; without any layer, the kernels of the run."""
    work = work.assign(name=work["name"].astype(object))
    parts = work.groupby(["layer", "name", "bound"])["busy_ns"].sum().sort_values(ascending=False).reset_index()
    found = parts.groupby(["layer", "name"], sort=False).agg(time=("busy_ns", "sum"), bound=("bound", "first"))
    found = found.reset_index().sort_values("layer", kind="stable")
    found = found[(found["layer"] >= 0) | layers.empty]
    return pd.DataFrame(
        {
            "id": [f"work-{row}" for row in range(len(found))],
            "above": [f"layer-{row}" if row >= 0 else "" for row in found["layer"]],
            "label": found["name"].to_numpy(),
            "name": found["name"].to_numpy(),
            "time": found["time"].to_numpy(),
            "bound": found["bound"].to_numpy(),
        }
    )
