"""Names for the parts of a comparison."""

import pandas as pd

from tracekit.analyzers.compare import Comparison, Side
from tracekit.analyzers.core import facts
from tracekit.analyzers.results import CAUSE_MEANINGS
from tracekit.reports.words import (
    ABSENT,
    ARROW,
    device,
    duration,
    grouped,
    in_tree_order,
    inside,
    model,
    printable,
    unnumbered,
)

_FACTS = facts(__file__)
FAMILIES: dict[str, str] = _FACTS["families"]
"""Displayed names of families of ops. A family that is not listed keeps its name."""

IDLE: dict[str, str] = _FACTS["idle"]
IDLE_MEANINGS = {
    **CAUSE_MEANINGS,
    "edges": "before a step's first work and after its last",
    "profiler": "the kernels took longer under the profiler than the whole step without it",
    "unknown": "the launch of the work that ended the wait is not recorded",
}

OVERLAP = "overlap of kernels"
OVERLAP_MEANING = "concurrent kernels count in full above, but the step contains their time only once"

LEAST_NS = 5
"""A change smaller than this, in ns, counts as none, because no clock resolves it."""


def part(kind: str, name: str) -> str:
    """Return the displayed name of a row of `difference`."""
    if kind == "overlap":
        return OVERLAP
    return IDLE[name] if kind == "idle" else FAMILIES.get(name, name)


def described(side: Side) -> str:
    """Return the kind and settings: "measured · NVIDIA H200 · fp32 · GPT-2 decode · 3 steps"."""
    return f"{side.source.kind} · {settings(side)}"


def settings(side: Side) -> str:
    """Return the settings of a side: "NVIDIA H200 · fp32 · GPT-2 decode · 3 steps"."""
    source, capture = side.source, side.source.capture
    what = " ".join(word for word in (model(capture.model), capture.workload) if word) if capture else ""
    steps = f"{side.steps} step{'s' if side.steps > 1 else ''}"
    parts = (source.device_name or device(source), source.precision, what, steps)
    return printable(" · ".join(word for word in parts if word))


def change(nanoseconds: float) -> str:
    """Return a signed duration: "+1.20 ms", "−722 µs" or "±0"."""
    if abs(nanoseconds) < LEAST_NS:
        return "±0"
    return f"{'+' if nanoseconds > 0 else '−'}{_duration(abs(nanoseconds))}"


def signed_percent(share: float) -> str:
    """Return a fraction as a percentage with one decimal, with a sign if it is negative."""
    text = f"{abs(100 * share):.1f} %"
    return f"−{text}" if share < 0 and text != "0.0 %" else text


def time(nanoseconds: float) -> str:
    """Return a duration, or a dash for 0."""
    return _duration(nanoseconds) if nanoseconds else ABSENT


def _duration(nanoseconds: float) -> str:
    """Return a duration; below 1 µs with two decimals."""
    text = f"{abs(nanoseconds) / 1e3:.2f} µs" if abs(nanoseconds) < 1e3 else duration(abs(nanoseconds) / 1e3)
    return f"−{text}" if nanoseconds < 0 else text


def parts(comparison: Comparison) -> pd.DataFrame:
    """Return the table `difference` with displayed names, without rows that are 0 on both sides."""
    rows = comparison.difference
    titles = [part(kind, name) for kind, name in zip(rows["kind"], rows["name"], strict=True)]
    return rows.assign(name=titles, match="")[(rows["a_ns"] != 0) | (rows["b_ns"] != 0)]


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ops or kernels that change, with a `name` for both sides; the largest change is first."""
    names = [both(a, b) for a, b in zip(rows["a_name"], rows["b_name"], strict=True)]
    return rows.assign(name=names)[rows["change_ns"] != 0]


def both(a: str, b: str) -> str:
    """Return one name for both sides: the common one, the only one, or "a → b"."""
    a, b = a.removeprefix("void "), b.removeprefix("void ")
    return a if a == b or not b else b if not a else f"{a}{ARROW}{b}"


def layer_patterns(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each group of layers whose names differ only in a number, in tree order.

    Columns: `name` (below the parent), `depth`, `count`, `match`, and sums of times (ns) and kernels.
    """
    parents = layers["parent"].tolist()
    local = {side: _local(layers[f"{side}_path"].tolist(), parents) for side in "ab"}
    keys = {side: map(unnumbered, local[side], layers[f"{side}_type"]) for side in "ab"}
    only = layers["match"].where(layers["match"].str.startswith("only"), "").tolist()
    names = [both(a, b) for a, b in zip(keys["a"], keys["b"], strict=True)]
    groups = grouped([f"{match}\n{name}" for name, match in zip(names, only, strict=True)], parents)
    groupby = layers.assign(key=names, exact=local_names(layers), match=only).groupby(groups)
    first, count = groupby.first(), groupby.size()
    times = {name: groupby[name].sum() for name in layers.columns if name.endswith(("_ns", "_kernels"))}
    above = [groups[parent] if parent >= 0 else -1 for parent in first["parent"]]
    patterns = first.assign(name=first["key"].where(count > 1, first["exact"]), count=count, **times)
    return patterns.loc[in_tree_order(above)]


def local_names(layers: pd.DataFrame) -> list[str]:
    """Return the names of layers below their parents."""
    parents = layers["parent"].tolist()
    return [
        both(a, b) for a, b in zip(*(_local(layers[f"{side}_path"].tolist(), parents) for side in "ab"), strict=True)
    ]


def _local(paths: list[str], parents: list[int]) -> list[str]:
    return [inside(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)]
