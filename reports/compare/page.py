"""A comparison as one page that needs no other file and no network."""

from typing import Any

import pandas as pd

from tracekit.analyzers.compare import Comparison, Side
from tracekit.analyzers.results import CAUSES, say
from tracekit.reports.compare.document import difference
from tracekit.reports.compare.explanation import explained
from tracekit.reports.compare.names import (
    both,
    local_names,
    settings,
    time,
)
from tracekit.reports.document import page
from tracekit.reports.words import (
    ROW_LIMIT,
    Kind,
    TableView,
    duration,
    percent,
    printable,
    rows_of,
    sentence,
    table_view,
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
    ("path", "layer", "name"),
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


def table_views(comparison: Comparison) -> list[TableView]:
    """Return the tables of layers, ops and kernels, each with the rows that change most."""
    layers = comparison.layers.assign(path=_both(comparison.layers, "path"), short=local_names(comparison.layers))
    return [
        table_view("compared_layers", "Layers", layers, _LAYERS, ROW_LIMIT, _NAME_HELP),
        *(
            table_view(f"compared_{name}", name.capitalize(), rows, _NAMED, ROW_LIMIT, _NAME_HELP)
            for name, frame in (("ops", comparison.ops), ("kernels", comparison.kernels))
            for rows in [frame.assign(name=_both(frame, "name"))]
        ),
    ]


def _both(rows: pd.DataFrame, what: str) -> list[str]:
    return [both(a, b) for a, b in zip(rows[f"a_{what}"], rows[f"b_{what}"], strict=True)]
