"""The tables of a comparison with the names that people read."""

import pandas as pd

from tracekit.analyzers.comparison.result import Comparison
from tracekit.reports.comparison.words import part
from tracekit.reports.names import inside, printable
from tracekit.reports.names import shortened as name_shortened
from tracekit.reports.patterns import grouped, in_tree_order, unnumbered

_ARROW = " → "


def parts(comparison: Comparison) -> pd.DataFrame:
    """The difference with `name` as people say it; rows that neither side has are left out."""
    rows = comparison.difference
    titles = [part(kind, name) for kind, name in zip(rows["kind"], rows["name"], strict=True)]
    return rows.assign(name=titles, match="")[(rows["a_ns"] != 0) | (rows["b_ns"] != 0)]


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Ops or kernels with the `name` of both sides, the largest change first; those that do not change are left out."""
    names = [both(a, b) for a, b in zip(rows["a_name"], rows["b_name"], strict=True)]
    return rows.assign(name=names)[rows["change_ns"] != 0]


def both(a: str, b: str) -> str:
    a, b = a.removeprefix("void "), b.removeprefix("void ")
    return a if a == b or not b else b if not a else f"{a}{_ARROW}{b}"


def shortened(name: str, limit: int) -> str:
    """At most `limit` characters; of two names with an arrow between them, something of each."""
    name = printable(name)
    a, arrow, b = name.partition(_ARROW)
    if len(name) <= limit or not arrow:
        return name_shortened(name, limit)
    half = (limit - len(_ARROW)) // 2
    room_for_a = max(half, limit - len(_ARROW) - len(b))
    a = name_shortened(a, room_for_a)
    return f"{a}{_ARROW}{name_shortened(b, limit - len(_ARROW) - len(a))}"


def layer_patterns(layers: pd.DataFrame) -> pd.DataFrame:
    """The tree of layers with those that differ in a number only as one, in tree order.

    Columns: name (below the parent), depth, count, match, and the times of all of them.
    """
    parents = layers["parent"].tolist()
    local = {side: _local(layers[f"{side}_path"].tolist(), parents) for side in "ab"}
    keys = {side: map(unnumbered, local[side], layers[f"{side}_type"]) for side in "ab"}
    only = layers["match"].where(layers["match"].str.startswith("only"), "").tolist()
    names = [both(a, b) for a, b in zip(keys["a"], keys["b"], strict=True)]
    groups = grouped([f"{match}\n{name}" for name, match in zip(names, only, strict=True)], parents)
    exact = [both(a, b) for a, b in zip(local["a"], local["b"], strict=True)]
    found = layers.assign(key=names, exact=exact, match=only).groupby(groups)
    first, count = found.first(), found.size()
    times = {name: found[name].sum() for name in layers.columns if name.endswith(("_ns", "_kernels"))}
    above = [groups[parent] if parent >= 0 else -1 for parent in first["parent"]]
    patterns = first.assign(name=first["key"].where(count > 1, first["exact"]), count=count, **times)
    return patterns.loc[in_tree_order(above)]


def _local(paths: list[str], parents: list[int]) -> list[str]:
    return [inside(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)]
