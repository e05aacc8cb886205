"""A comparison as one page that needs no other file and no network."""

from typing import Any

import pandas as pd

from tracekit.analyzers.compare import Comparison, Side
from tracekit.analyzers.core import TABLES
from tracekit.analyzers.results import CAUSES, say
from tracekit.reports.compare.document import difference
from tracekit.reports.compare.explanation import explained
from tracekit.reports.compare.names import (
    both,
    settings,
    shortened,
    time,
)
from tracekit.reports.document import page
from tracekit.reports.words import (
    Cell,
    Column,
    Kind,
    Row,
    TableView,
    cells_of,
    duration,
    inside,
    percent,
    printable,
    rows_of,
    sentence,
)

_SCRIPTS = ("dom", "folding", "tables", "tabs", "copying", "tips", "page", "compare")


def render(comparison: Comparison, mark: str = "") -> str:
    """Return the HTML page. Names from the traces are escaped. `mark` identifies the two inputs."""
    return page(
        "comparison",
        printable(f"{comparison.a.name} and {comparison.b.name}"),
        mark=mark,
        styles=("compare",),
        scripts=_SCRIPTS,
        sentence=explained(comparison),
        runs=[_run(letter, side, comparison) for letter, side in (("A", comparison.a), ("B", comparison.b))],
        notes=comparison.notes,
        difference=difference(comparison),
        tables=table_views(comparison),
        how=sentence(say("how-compare")).splitlines(),
    )


def _run(letter: str, side: Side, comparison: Comparison) -> dict[str, Any]:
    longest = max(comparison.a.latency_ns, comparison.b.latency_ns)
    spread = [duration(end / 1e3) for end in side.spread_ns or ()]
    busy = f"{duration(side.busy_ns / 1e3)} busy ({percent(min(1.0, side.busy_ns / side.latency_ns))})"
    return {
        "letter": letter,
        "name": printable(side.name),
        "kind": side.source.kind,
        "latency": time(side.latency_ns),
        "spread": f"{spread[0]} to {spread[1]}" if spread else "",
        "described": settings(side),
        "busy": f"{busy}, {side.kernels:,.0f} kernels per step",
        "whole": round(side.latency_ns / longest, 4),
        "strip": _strip(letter.lower(), comparison),
    }


def _strip(side: str, comparison: Comparison) -> list[tuple[str, float]]:
    """Return (CSS class, time in ns) of each part of the step, in the order of the table. Idle time has its cause's
    colour."""
    rows = [(row.kind, row.name, getattr(row, f"{side}_ns")) for row in rows_of(comparison.difference)]
    return [
        (f"gap-{name if name in CAUSES else 'unknown'}" if kind == "idle" else "", round(time_ns, 1))
        for kind, name, time_ns in rows
        if time_ns > 0
    ]


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
