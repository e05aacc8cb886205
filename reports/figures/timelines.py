"""The timeline of steps: blocks of the model, host ops and calls, streams, and idle time with its causes."""

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import median_step, shown_steps
from tracekit.analyzers.results import CAUSES, Analysis
from tracekit.reports.figures.icicles import BOUND_NAMES, Figure, bound_title, cause_colour, colour, text
from tracekit.reports.words import duration

LIMIT, OTHERS = 5_000, 1_000
"""The most bars of work, and of idle time, that are drawn of the step of median length, and of each other step."""
_HOST_KINDS = ("op", "launch", "sync", "call")
_LANE_PIXELS = 34


def timeline(analysis: Analysis) -> tuple[Figure, str] | None:
    """Return the figure of the shown steps, and a note on what is drawn of the first one to see, of median length.

    The figure has `steps`, each with `data`, `title` and `note`, and in `shown` the position of that step. Returns None
    if the trace has no steps or no work.
    """
    steps = analysis.timeline.steps
    if steps.empty or analysis.work.empty:
        return None
    rows = shown_steps(steps)
    first = int(np.flatnonzero(rows == median_step(steps))[0])
    parts = [_part(analysis, int(row), LIMIT if at == first else OTHERS) for at, row in enumerate(rows)]
    lanes = _lanes(*(pd.concat([part[at] for part in parts]) for at in ("drawn", "gaps", "spans")))
    drawn = [_step(analysis, part, lanes) for part in parts]
    layout = {
        "xaxis": {"title": {"text": "time in the step (ms)"}, "zeroline": False, "automargin": True},
        "yaxis": {"tickvals": list(lanes.values()), "ticktext": list(lanes), "fixedrange": True, "zeroline": False,
                  "range": [-0.6, len(lanes) - 0.4], "showgrid": False},
        "showlegend": False,
        "margin": {"l": 96, "r": 12, "t": 6, "b": 44},
        "hoverdistance": 30,
        "height": 60 + _LANE_PIXELS * len(lanes),
    }  # fmt: skip
    return {"steps": drawn, "shown": first, "layout": layout}, drawn[first]["note"]


class _Part(TypedDict):
    """The rows of a step, and those of its work that are drawn."""

    chosen: "pd.Series[Any]"
    work: pd.DataFrame
    drawn: pd.DataFrame
    gaps: pd.DataFrame
    spans: pd.DataFrame


def _part(analysis: Analysis, row: int, limit: int) -> _Part:
    chosen = analysis.timeline.steps.iloc[row]
    work, gaps, spans = (
        table[table["step"] == chosen["step"]] for table in (analysis.work, analysis.gaps, analysis.host_spans)
    )
    if work.empty and len(analysis.timeline.steps) == 1:
        work = analysis.work
    longest = [table.nlargest(limit, "duration_ns").sort_index() for table in (work, gaps)]
    return {"chosen": chosen, "work": work, "drawn": longest[0], "gaps": longest[1], "spans": spans}


def _step(analysis: Analysis, part: _Part, lanes: dict[str, int]) -> dict[str, Any]:
    chosen, drawn = part["chosen"], part["drawn"]
    begin = min([int(chosen["start_ns"]), *drawn["start_ns"]])
    traces = [
        *(blocks(drawn, analysis.layers, begin, lanes["layers"]) if (drawn["layer"] >= 0).any() else ()),
        *_host(part["spans"], lanes, begin),
        *_work(drawn, lanes, begin),
        *_gaps(part["gaps"], lanes, begin),
    ]
    title = f"Step {chosen['step']}, {duration(chosen['wall_ns'] / 1000)}"
    return {"data": traces, "title": title, "note": _note(analysis.timeline.steps, part)}


def _note(steps: pd.DataFrame, part: _Part) -> str:
    work, drawn, chosen = part["work"], part["drawn"], part["chosen"]
    is_median = chosen["step"] == steps["step"].iloc[median_step(steps)]
    which = f"Step {chosen['step']}, " + ("of median length among " if is_median else "one of ") + f"{len(steps):,}."
    sentences = [which if len(steps) > 1 else "The recorded step."]
    if len(steps) > (most := len(shown_steps(steps))):
        sentences.append(f"Shown: {most} of them, also the shortest and the {most - 2} longest.")
    if len(drawn) < len(work):
        share = drawn["busy_ns"].sum() / max(1, work["busy_ns"].sum())
        sentences.append(
            f"Drawn: the {len(drawn):,} longest of {len(work):,} pieces of work, {share:.1%} of the busy time."
        )
    return " ".join(sentences)


def _lanes(work: pd.DataFrame, gaps: pd.DataFrame, spans: pd.DataFrame) -> dict[str, int]:
    """Return the height of each lane by name; from the top: layers, host threads, streams, idle time."""
    threads = sorted({(thread, kind != "op") for thread, kind in zip(spans["thread"], spans["kind"], strict=True)})
    host = [_host_lane(thread, "call" if calls else "op") for thread, calls in threads]
    several = work["device"].nunique() > 1
    idle = [_idle_lane(device, several) for device in sorted(set(gaps["device"]))]
    layers = ["layers"] if (work["layer"] >= 0).any() else []
    names = [*layers, *host, *sorted(set(_lane_names(work))), *idle]
    return {name: len(names) - 1 - at for at, name in enumerate(names)}


def _host_lane(thread: int, kind: str) -> str:
    place = f"host {thread + 1}" if thread else "host"
    return f"{place} ops" if kind == "op" else f"{place} calls"


def _idle_lane(device: int, several: bool) -> str:
    return f"GPU {device} idle" if several else "GPU idle"


def _lane_names(work: pd.DataFrame) -> list[str]:
    several = work["device"].nunique() > 1
    pairs = zip(work["device"], work["stream"], strict=True)
    return [_lane_name(device, stream, several) for device, stream in pairs]


def _lane_name(device: int, stream: int, several: bool) -> str:
    place = "CPU" if device < 0 else f"GPU {device}" if several else "GPU"
    return f"{place} stream {stream}" if stream >= 0 and device >= 0 else place


def _work(work: pd.DataFrame, lanes: dict[str, int], begin: int) -> list[dict[str, Any]]:
    height = pd.Series(_lane_names(work), index=work.index).map(lanes)
    traces = []
    for bound in BOUND_NAMES:
        mine = work["bound"] == bound
        if mine.any():
            names = [text(str(name)) for name in work.loc[mine, "name"]]
            drawn = bars(work[mine], height[mine], begin, names)
            traces.append(drawn | {"name": bound_title(bound), "line": thick(colour(bound), 24)})
    return traces


def _gaps(gaps: pd.DataFrame, lanes: dict[str, int], begin: int) -> list[dict[str, Any]]:
    several = sum(name.endswith(" idle") for name in lanes) > 1
    traces = []
    for cause in (*CAUSES, ""):
        mine = gaps[gaps["cause"] == cause]
        if len(mine):
            height = [lanes[_idle_lane(device, several)] for device in mine["device"]]
            names = [f"idle: {cause or 'cause unknown'}{_preceding_op(str(op))}" for op in mine["op"]]
            line = thick(cause_colour(cause), 14)
            traces.append(bars(mine, height, begin, names) | {"name": f"idle: {cause or 'unknown'}", "line": line})
    return traces


def _preceding_op(op: str) -> str:
    return f", before {text(op, 60)}" if op else ""


def _host(spans: pd.DataFrame, lanes: dict[str, int], begin: int) -> list[dict[str, Any]]:
    traces = []
    for kind in _HOST_KINDS:
        mine = spans[spans["kind"] == kind]
        if len(mine):
            height = [lanes[_host_lane(thread, kind)] for thread in mine["thread"]]
            names = [text(str(name)) for name in mine["name"]]
            line = thick(f"--host-{kind}", 16)
            traces.append(bars(mine, height, begin, names) | {"name": f"host: {kind}", "line": line})
    return traces


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
