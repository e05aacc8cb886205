"""The rows of a comparison with names to display: one name for both sides, or "A's → B's"."""

import pandas as pd

from tracekit.analyzers.comparison.comparison import Comparison
from tracekit.reports.comparison.part_names import part
from tracekit.reports.layer_patterns import grouped, in_tree_order, unnumbered
from tracekit.reports.names import inside, printable
from tracekit.reports.names import shortened as name_shortened

_ARROW = " → "


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
    return a if a == b or not b else b if not a else f"{a}{_ARROW}{b}"


def shortened(name: str, limit: int) -> str:
    """Return `name` in at most `limit` characters. "a → b" keeps a part of both names."""
    name = printable(name)
    a, arrow, b = name.partition(_ARROW)
    if len(name) <= limit or not arrow:
        return name_shortened(name, limit)
    half = (limit - len(_ARROW)) // 2
    room_for_a = max(half, limit - len(_ARROW) - len(b))
    a = name_shortened(a, room_for_a)
    return f"{a}{_ARROW}{name_shortened(b, limit - len(_ARROW) - len(a))}"


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
    exact = [both(a, b) for a, b in zip(local["a"], local["b"], strict=True)]
    groupby = layers.assign(key=names, exact=exact, match=only).groupby(groups)
    first, count = groupby.first(), groupby.size()
    times = {name: groupby[name].sum() for name in layers.columns if name.endswith(("_ns", "_kernels"))}
    above = [groups[parent] if parent >= 0 else -1 for parent in first["parent"]]
    patterns = first.assign(name=first["key"].where(count > 1, first["exact"]), count=count, **times)
    return patterns.loc[in_tree_order(above)]


def _local(paths: list[str], parents: list[int]) -> list[str]:
    return [inside(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)]
