"""The tables of a comparison with the names that people read."""

import re
from typing import Any

import pandas as pd

from analyzers.comparison.result import Comparison
from reports.comparison.words import part
from reports.names import inside, middle_truncated, printable

_ARROW = " → "
_NUMBER = re.compile(r"(?<![^./])\d+(?![^./])")


def each(frame: pd.DataFrame) -> list[Any]:
    """Its rows, whose fields are its columns."""
    return list(frame.itertuples())


def parts(comparison: Comparison) -> pd.DataFrame:
    """The difference with `name` as people say it; rows that neither side has are left out."""
    rows = comparison.difference
    names = [part(kind, name) for kind, name in zip(rows["kind"], rows["name"], strict=True)]
    return rows.assign(name=names, match="")[(rows["a_ns"] != 0) | (rows["b_ns"] != 0)]


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
        return middle_truncated(name, limit)
    half = (limit - len(_ARROW)) // 2
    room_for_a = max(half, limit - len(_ARROW) - len(b))
    a = middle_truncated(a, room_for_a)
    return f"{a}{_ARROW}{middle_truncated(b, limit - len(_ARROW) - len(a))}"


def layer_patterns(layers: pd.DataFrame) -> pd.DataFrame:
    """The tree of layers with those that differ in a number only as one: h.* for h.0 to h.11. In tree order.

    Columns: name (below the parent), depth, count, match, and the times of all of them.
    """
    group_of: dict[tuple[int, str, str], int] = {}
    rows: list[dict[str, Any]] = []
    groups: list[int] = []
    for row in layers.to_dict("records"):
        above = layers.loc[row["parent"]] if row["parent"] >= 0 else {"a_path": "", "b_path": ""}
        names = [inside(row[f"{side}_path"], above[f"{side}_path"]) for side in "ab"]
        name = both(*(_unnumbered(each, row[f"{side}_type"]) for side, each in zip("ab", names, strict=True)))
        only = row["match"] if row["match"].startswith("only") else ""
        key = (groups[row["parent"]] if row["parent"] >= 0 else -1, name, only)
        if key not in group_of:
            group_of[key] = len(rows)
            rows.append({"name": name, "exact": both(*names), "depth": row["depth"], "match": only, "parent": key[0]})
        groups.append(group_of[key])
    return _in_tree_order(_summed(pd.DataFrame(rows), layers, groups))


def _unnumbered(name: str, kind: str) -> str:
    """h.* for h.3, GPT2Block_* for GPT2Block_3, the fourth of its class."""
    of_class = kind and name.startswith(f"{kind}_") and name.removeprefix(f"{kind}_").isdigit()
    return f"{kind}_*" if of_class else _NUMBER.sub("*", name)


def _summed(patterns: pd.DataFrame, layers: pd.DataFrame, groups: list[int]) -> pd.DataFrame:
    times = [name for name in layers.columns if name.endswith(("_ns", "_kernels"))]
    sums = layers[times].groupby(groups).sum()
    count = layers["depth"].groupby(groups).size()
    name = patterns["name"].where(count > 1, patterns["exact"])
    return patterns.assign(name=name, count=count, **{column: sums[column] for column in times})


def _in_tree_order(patterns: pd.DataFrame) -> pd.DataFrame:
    """A pattern's layers may come back to it later: its children follow it."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(patterns["parent"]):
        children.setdefault(parent, []).append(row)
    order: list[int] = []
    pending = list(reversed(children.get(-1, [])))
    while pending:
        order.append(pending.pop())
        pending += reversed(children.get(order[-1], []))
    return patterns.loc[order]
