"""Tables of the page: labelled columns with one unit each, cells with a value to sort by, and groups of like layers."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import pandas as pd

from tracekit.analyzers.core import TABLES
from tracekit.analyzers.results import BOUNDS
from tracekit.reports.words.names import inside, middle_truncated, printable, shortened

_NUMBER = re.compile(r"(?<![^./])\d+(?![^./])")


def unnumbered(name: str, kind: str) -> str:
    """Return `name` with numbers replaced by "*": "h.*" for "h.3", "GPT2Block_*" for "GPT2Block_3"."""
    of_class = kind and name.startswith(f"{kind}_") and name.removeprefix(f"{kind}_").isdigit()
    return f"{kind}_*" if of_class else _NUMBER.sub("*", name)


def grouped(keys: Sequence[str], parents: Sequence[int]) -> list[int]:
    """Return the group number of each node of a tree in which parents precede children.

    Nodes are in the same group if their keys are equal and their parents are in the same group.
    """
    number: dict[tuple[int, str], int] = {}
    groups: list[int] = []
    for key, parent in zip(keys, parents, strict=True):
        groups.append(number.setdefault((groups[parent] if parent >= 0 else -1, key), len(number)))
    return groups


def in_tree_order(parents: Sequence[int]) -> list[int]:
    """Return the indices of a tree's nodes in depth-first order. `parents` holds -1 for a root."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        children.setdefault(parent, []).append(row)
    order: list[int] = []
    pending = list(reversed(children.get(-1, [])))
    while pending:
        order.append(pending.pop())
        pending += reversed(children.get(order[-1], []))
    return order


def layer_patterns(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each group of layers whose names differ only in a number, in tree order.

    `name` is the name below the parent and `count` the number of layers. Times and costs are sums; bounds are those
    of the layer with the most busy time.
    """
    paths, parents = layers["path"].tolist(), layers["parent"].tolist()
    exact = [inside(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)]
    keys = [unnumbered(name, kind) for name, kind in zip(exact, layers["type"], strict=True)]
    groups = grouped(keys, parents)
    groupby = layers.assign(key=keys, exact=exact, group=groups).groupby("group")
    first = groupby.first()
    above = [groups[parent] if parent >= 0 else -1 for parent in first["parent"]]
    sums = groupby[["calls", "duration_ns", "busy_ns", "self_busy_ns", "kernels", "share"]].sum()
    known = groupby[["flops", "bytes"]].sum(min_count=1)
    longest = layers.loc[groupby["busy_ns"].idxmax(), ["bound", "own_bound"]].set_axis(first.index)
    count = groupby.size()
    name = first["key"].where(count > 1, first["exact"])
    return first.assign(name=name, count=count, **longest, **sums, **known).loc[in_tree_order(above)]


Kind = Literal["name", "text", "prose", "bound", "cause", "count", "time", "change", "share", "flops", "bytes", "ratio"]
ROW_LIMIT = 1_500
"""The most rows of a table; with more, the page is slow to open."""
_LONGEST_TITLE = 1_000
_LIMITS = {"name": 72, "text": 22}
_LIKE = {"after_ns": "before_ns", "self_busy_ns": "busy_ns", "duration_ns": "busy_ns"}
_LIKE |= {"idle_ns": "wall_ns", "busy_ns": "wall_ns"}
"""Columns with the same unit as another column of the table, so that they can be compared."""
_UNITS: dict[str, tuple[tuple[float, str, int], ...]] = {
    "time": ((1e10, "s", 3), (1e7, "ms", 3), (0, "µs", 1)),
    "flops": ((1e12, "TFLOP", 3), (1e9, "GFLOP", 3), (1e6, "MFLOP", 3), (0, "kFLOP", 3)),
    "bytes": ((1e9, "GB", 3), (1e6, "MB", 3), (0, "kB", 3)),
}
_SCALE = {"s": 1e9, "ms": 1e6, "µs": 1e3, "TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6, "kFLOP": 1e3}
_SCALE |= {"GB": 1e9, "MB": 1e6, "kB": 1e3}


class Column(msgspec.Struct, frozen=True):
    label: str
    unit: str
    kind: Kind
    help: str


class Cell(msgspec.Struct, frozen=True):
    text: str
    value: str
    """Value to sort by: a number, or "" if unknown."""
    title: str = ""
    """Full name, if the text is a shortened one."""
    part: float = 0.0
    """A change as a fraction of the largest change in its column, -1 to 1."""


class Row(msgspec.Struct, frozen=True):
    index: int
    cells: tuple[Cell, ...]
    bound: str
    depth: int = 0
    parent: int = -1
    short: str = ""
    """Name below the parent."""


class TableView(msgspec.Struct, frozen=True):
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bounds: tuple[str, ...]
    left_out: int
    tree: bool
    sorted_by: int
    """Index of the column by which rows are sorted, in descending order; -1 if there is none."""


def table_view(
    table: str,
    title: str,
    frame: pd.DataFrame,
    spec: Iterable[tuple[str, str, Kind]],
    row_limit: int,
    name_help: str = "",
) -> TableView:
    """Return a table for the page. `spec` lists the columns: (column, label, kind).

    If there are more rows than `row_limit`, those with the least time, or change of it, are left out. `name_help` is
    the help of a column that the table does not declare.
    """
    chosen, tree = _chosen(frame.reset_index(drop=True), row_limit), "parent" in frame
    spec = [each for each in spec if _says_something(chosen[each[0]], each[2])]
    help_of = {column.name: column.meaning for column in TABLES[table].columns}
    columns, cells = [], []
    for name, label, kind in spec:
        unit, texts = _cells_of(chosen[name], kind, chosen.get(_LIKE.get(name, name)))
        columns.append(Column(label, unit, kind, help_of.get(name, name_help)))
        cells.append(texts)
    bound = _colours(chosen)
    rows = [Row(index, row, bound[index]) for index, row in zip(chosen.index, zip(*cells, strict=True), strict=True)]
    rows = _nested(rows, chosen) if tree else rows
    present = tuple(name for name in BOUNDS if (bound == name).any())
    return TableView(
        table.removeprefix("compared_"),
        title,
        tuple(columns),
        tuple(rows),
        present,
        len(frame) - len(chosen),
        tree,
        _sorted_by(spec, tree),
    )


def _colours(rows: pd.DataFrame) -> "pd.Series[str]":
    """Return the CSS class of each row's colour: its bound, or the cause of its idle time."""
    if "bound" in rows:
        return rows["bound"]
    return "gap-" + rows["cause"] if "cause" in rows else pd.Series("", index=rows.index)


def _sorted_by(spec: list[tuple[str, str, Kind]], tree: bool) -> int:
    names = [name for name, _, _ in spec]
    return names.index("busy_ns") if "busy_ns" in names and not tree else -1


def _chosen(frame: pd.DataFrame, row_limit: int) -> pd.DataFrame:
    """Return the rows with the most time, in descending order, or the most change of it; a tree keeps its order."""
    by = next((name for name in ("busy_ns", "change_ns") if name in frame), "")
    if not by:
        return frame.head(row_limit)
    longest = frame.loc[frame[by].abs().nlargest(row_limit).index]
    return longest.sort_index() if "parent" in frame or by == "change_ns" else longest


def _says_something(values: "pd.Series[Any]", kind: Kind) -> bool:
    return bool(values.notna().any()) and (kind != "text" or bool((values != "").any()))


def _nested(rows: list[Row], layers: pd.DataFrame) -> list[Row]:
    paths = layers["path"].to_dict()
    local = [inside(paths[row], paths.get(parent, "")) for row, parent in layers["parent"].items()]
    shorts = layers.get("short", local)
    return [
        Row(
            row.index,
            row.cells,
            row.bound,
            int(depth),
            int(parent),
            middle_truncated(printable(short), _LIMITS["name"]),
        )
        for row, depth, parent, short in zip(rows, layers["depth"], layers["parent"], shorts, strict=True)
    ]


def _cells_of(values: "pd.Series[Any]", kind: Kind, like: "pd.Series[Any] | None" = None) -> tuple[str, list[Cell]]:
    """Return the unit of a column, and its cells. The unit is that of the column `like`, if given."""
    if kind in ("name", "text", "prose", "bound", "cause"):
        return "", [_words(str(value), kind) for value in values]
    unit, scale, decimals = _unit((values if like is None else like).abs(), kind)
    scaled = (values.astype(float) / scale).tolist()
    if kind == "change":
        most = max(map(abs, scaled), default=0.0) or 1.0
        return unit, [_change(value, decimals, value / most) for value in scaled]
    return unit, [_figure(value, decimals) for value in scaled]


def _unit(values: "pd.Series[Any]", kind: Kind) -> tuple[str, float, int]:
    if kind == "share":
        return "%", 0.01, 1
    kind = "time" if kind == "change" else kind
    if kind not in _UNITS:
        whole = kind == "count" and bool((values.dropna() % 1 == 0).all())
        return "", 1.0, 0 if whole else 1 if kind == "count" else 2
    largest = max(values.dropna().tolist(), default=0)
    _, unit, decimals = next(row for row in _UNITS[kind] if largest >= row[0])
    return unit, _SCALE[unit], decimals


def _figure(value: float, decimals: int) -> Cell:
    if not math.isfinite(value):
        return Cell("–", "")
    return Cell(f"{value:,.{decimals}f}", f"{value:.10g}")


def _change(value: float, decimals: int, part: float) -> Cell:
    text = f"{abs(value):,.{decimals}f}"
    sign = "" if float(text.replace(",", "")) == 0 else "+" if value > 0 else "\N{MINUS SIGN}"
    return Cell(sign + text, f"{value:.10g}", part=round(part, 4))


def _words(name: str, kind: Kind) -> Cell:
    whole = printable(name)
    text = shortened(whole.removeprefix("void "), _LIMITS[kind]) if kind in _LIMITS else whole
    return Cell(text, text, shortened(whole, _LONGEST_TITLE) if text != whole else "")
