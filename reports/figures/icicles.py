"""The icicle chart: busy time in the tree of layers, ops and kernels.

The page receives columns, from which it builds the tree by layer or by layer type.
"""

import html
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import NO_LAYER, NO_OP, OF_GRAPH, in_steps
from tracekit.analyzers.results import BOUNDS, Analysis
from tracekit.reports.words import inside, printable, shortened

Figure = dict[str, Any]
"""`data` and `layout` of a Plotly figure."""

BOUND_NAMES = (*BOUNDS, "")
SYMBOLS = {
    "compute": "square",
    "memory": "circle",
    "launch": "triangle-up",
    "latency": "diamond",
    "transfer": "cross",
    "": "circle-open",
}

GLYPHS = {"compute": "■", "memory": "●", "launch": "▲", "latency": "◆", "transfer": "✚", "": "○"}
"""The symbols as characters."""


def colour(bound: str) -> str:
    return f"--{bound or 'unknown'}"


def cause_colour(cause: str) -> str:
    """Return the colour of idle time with this cause."""
    return f"--gap-{cause}" if cause else "--unknown"


def bound_title(bound: str) -> str:
    return bound or "unknown"


def text(name: str, limit: int = 80) -> str:
    """Return `name` escaped, in at most `limit` characters: Plotly interprets HTML in labels."""
    return html.escape(shortened(printable(name).removeprefix("void "), limit), quote=False)


def logarithmic(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "type": "log", "tickformat": ",~r", "dtick": 1}


LIMIT = 20_000
"""The most leaves in the chart. The page draws those that are wide enough."""
_LONGEST = 240
_KEYS = ["layer", "op", "kernel", "phase", "bound"]


def icicle(analysis: Analysis) -> tuple[Figure, str]:
    """Return the chart's data (busy time of a mean step in ns), and a note on the leaves that are left out.

    The tables of the analysis are those of a mean step.
    """
    leaves, steps = leaves_of(analysis), max(1, len(analysis.steps))
    kept = leaves.nlargest(LIMIT, "ns", keep="first").sort_index()
    ops, kernels = (_named(kept[name], table) for name, table in (("op", analysis.ops), ("kernel", analysis.kernels)))
    phase, phases = pd.factorize(kept["phase"])
    data = {
        "total": round(float(leaves["ns"].sum()) / steps, 1),
        "bounds": [name or "unknown" for name in BOUND_NAMES],
        "phases": [_text(str(name)) for name in phases],
        "layers": _layers(analysis.layers),
        "types": [_text(str(name)) for name in analysis.layer_types["type"]],
        "ops": ops[1],
        "kernels": kernels[1],
        "leaves": {
            "layer": kept["layer"].tolist(),
            "op": ops[0],
            "kernel": kernels[0],
            "phase": phase.tolist(),
            "bound": _bound_codes(kept["bound"]),
            "ns": (kept["ns"] / steps).round(1).tolist(),
            "count": (kept["count"] / steps).round(1).tolist(),
        },
    }
    return data, _note(leaves, kept)


def _note(leaves: pd.DataFrame, kept: pd.DataFrame) -> str:
    if len(kept) == len(leaves):
        return ""
    share = 1 - kept["ns"].sum() / max(1, leaves["ns"].sum())
    return f"The {len(leaves) - len(kept):,} smallest of {len(leaves):,} parts, {share:.2%} of the time, are left out."


def _layers(layers: pd.DataFrame) -> dict[str, list[Any]]:
    path, parent = [str(each) for each in layers["path"]], layers["parent"].tolist()
    return {
        "path": [_text(each) for each in path],
        "label": [
            _text(inside(own, path[above] if above >= 0 else "")) for own, above in zip(path, parent, strict=True)
        ],
        "type": [_text(str(each)) for each in layers["type"]],
        "parent": parent,
        "bound": _bound_codes(layers["bound"]),
        "ns": layers["busy_ns"].round(1).tolist(),
    }


def leaves_of(analysis: Analysis) -> pd.DataFrame:
    """Return busy time (ns) in steps by row of the layer (-1: none), op, kernel ("" on a CPU, where ops are the work),
    phase and bound."""
    work = analysis.work[in_steps(analysis.work)]
    stray = np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, NO_OP)
    op = work["op_name"].astype(object).to_numpy()
    layer = work["layer"].to_numpy()
    columns = {
        "layer": np.where(layer >= 0, layer, _row_of_the_rest(analysis.layers)),
        "op": np.where(op == "", stray, op),
        "kernel": work["name"].astype(object).to_numpy() if analysis.source.device == "gpu" else "",
        "phase": work["phase"].astype(object).to_numpy(),
        "bound": work["bound"].to_numpy(),
        "ns": work["busy_ns"].to_numpy(),
    }
    leaves = pd.DataFrame(columns).groupby(_KEYS, sort=False)["ns"].agg(ns="sum", count="size").reset_index()
    return leaves[leaves["ns"] > 0].reset_index(drop=True)


def _row_of_the_rest(layers: pd.DataFrame) -> int:
    rows = np.flatnonzero(layers["path"] == NO_LAYER)
    return int(rows[0]) if len(rows) else -1


def _named(names: "pd.Series[str]", table: pd.DataFrame) -> tuple[list[int], dict[str, list[Any]]]:
    """Return codes and, for each distinct name, its text and its row in `table` (-1: no row)."""
    codes, distinct = pd.factorize(names)
    first = table.drop_duplicates("name")
    row_of = dict(zip(first["name"], first.index.tolist(), strict=True))
    return codes.tolist(), {
        "name": [_text(str(name).removeprefix("void ")) for name in distinct],
        "row": [row_of.get(name, -1) for name in distinct],
    }


def _bound_codes(bounds: "pd.Series[str]") -> list[int]:
    codes: npt.NDArray[np.int64] = pd.Categorical(bounds, categories=BOUND_NAMES).codes.astype(np.int64)
    return codes.tolist()


def _text(name: str) -> str:
    return shortened(printable(name), _LONGEST)
