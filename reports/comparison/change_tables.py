"""The tables of changes on the page of a comparison."""

from typing import Any

import pandas as pd

from tracekit.analyzers.comparison.comparison import Comparison
from tracekit.analyzers.schema import TABLES
from tracekit.reports.comparison.matched_rows import both, shortened
from tracekit.reports.names import inside, printable
from tracekit.reports.views import Cell, Column, Kind, Row, TableView, cells_of

Spec = list[tuple[str, str, Kind]]

_TIMES: Spec = [("a_ns", "A", "time"), ("b_ns", "B", "time"), ("change_ns", "change", "change")]
_COUNTS: Spec = [("a_kernels", "kernels in A", "count"), ("b_kernels", "in B", "count")]
_LAYERS: Spec = [
    ("name", "layer", "name"),
    ("match", "matched by", "text"),
    *_TIMES,
    ("change_self_ns", "own change", "change"),
    *_COUNTS,
]
_NAMED: Spec = [
    ("name", "name", "name"),
    ("family", "family", "text"),
    ("match", "matched by", "text"),
    *_TIMES,
    *_COUNTS,
    ("a_precision", "precision in A", "text"),
    ("b_precision", "in B", "text"),
]
_NAME_HELP = "name in A and, after an arrow, in B if it differs"
_SHORT = 72
_MOST_ROWS = 1_500


def table_views(comparison: Comparison) -> list[TableView]:
    """Return the tables of layers, ops and kernels, each with the rows that change most."""
    layers = comparison.layers.assign(name=_both(comparison.layers, "path"))
    return [
        _view("layers", "Layers", layers, _LAYERS),
        *(
            _view(name, name.capitalize(), rows.assign(name=_both(rows, "name")), _NAMED)
            for name, rows in (("ops", comparison.ops), ("kernels", comparison.kernels))
        ),
    ]


def _both(rows: pd.DataFrame, what: str) -> list[str]:
    return [both(a, b) for a, b in zip(rows[f"a_{what}"], rows[f"b_{what}"], strict=True)]


def _view(name: str, title: str, frame: pd.DataFrame, spec: Spec) -> TableView:
    largest = frame["change_ns"].abs().nlargest(_MOST_ROWS).index
    kept, tree = frame.loc[frame.index.isin(largest)], name == "layers"
    meaning = {column.name: column.meaning for column in TABLES[f"compared_{name}"].columns} | {"name": _NAME_HELP}
    columns, cells = [], []
    for column, label, kind in spec:
        unit, texts = cells_of(kept[column], kind)
        columns.append(Column(label, unit, kind, meaning[column]))
        cells.append([_name(text) for text in kept[column]] if kind == "name" else texts)
    rows = [
        _row(int(index), row, frame if tree else None)
        for index, row in zip(kept.index, zip(*cells, strict=True), strict=True)
    ]
    return TableView(name, title, tuple(columns), tuple(rows), (), len(frame) - len(kept), tree, -1)


def _name(name: str) -> Cell:
    short, whole = shortened(name, _SHORT), printable(name)
    return Cell(short, short, whole if short != whole else "")


def _row(index: int, cells: tuple[Cell, ...], layers: pd.DataFrame | None) -> Row:
    if layers is None:
        return Row(index, cells, "")
    layer: Any = layers.loc[index]
    above: Any = layers.loc[layer["parent"]] if layer["parent"] >= 0 else {"a_path": "", "b_path": ""}
    short = both(*(inside(layer[key], above[key]) for key in ("a_path", "b_path")))
    return Row(index, cells, "", layer["depth"], layer["parent"], shortened(short, _SHORT))
