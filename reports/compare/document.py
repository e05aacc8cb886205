"""A comparison as a document."""

import pandas as pd

from tracekit.analyzers.compare import Comparison
from tracekit.reports.compare.explanation import explained, reason
from tracekit.reports.compare.names import (
    IDLE_MEANINGS,
    LEAST_NS,
    OVERLAP_MEANING,
    change,
    described,
    layer_patterns,
    named,
    parts,
    signed_percent,
    time,
)
from tracekit.reports.document import Cell, Document, Name, Row, Section, Table, Text, row_names
from tracekit.reports.words import printable, rows_of

_ROWS = 15
_TIMES = (">A", ">B", ">change")


def comparison_document(comparison: Comparison) -> Document:
    """Return the sentence, both sides, the difference, and the layers, ops and kernels that change most."""
    lists = {
        "Layers": layer_patterns(comparison.layers),
        "Ops": named(comparison.ops),
        "Kernels": named(comparison.kernels),
    }
    blocks = [
        Text(explained(comparison), "headline"),
        sides(comparison),
        *(Text(note, "doubtful") for note in comparison.notes),
        Section("Where the difference is, per step", [difference(comparison)]),
        *(Section(title, [_changes(rows)], folded=True) for title, rows in lists.items() if len(rows)),
    ]
    return Document(printable(f"{comparison.a.name} and {comparison.b.name}"), blocks)


def sides(comparison: Comparison) -> Table:
    both = (("A", comparison.a), ("B", comparison.b))
    rows = [(letter, Name(side.name), time(side.latency_ns), described(side)) for letter, side in both]
    return Table(("", "run", ">per step", "what it is"), rows)


def difference(comparison: Comparison) -> Table:
    """Return the table of the parts of a step; the changes of its rows sum to that of the last one."""
    shown = parts(comparison)
    meanings = comparison.difference["name"].map({**IDLE_MEANINGS, "overlap": OVERLAP_MEANING}).fillna("")
    rows = [
        (
            Cell(row.name, "idle", help=meanings[row.Index]) if row.kind != "busy" else row.name,
            *_numbers(row, float(shown["change_ns"].abs().max()) or 1.0),
            signed_percent(row.share),
            _counts(row.a_kernels, row.b_kernels) if row.kind == "busy" else str(row.kind),
            reason(row) if row.kind == "busy" else "",
        )
        for row in rows_of(shown)
    ]
    a, b, total = comparison.a, comparison.b, comparison.change_ns
    share = signed_percent(1.0 if total else 0.0)
    ends = ("the step", time(a.latency_ns), time(b.latency_ns), change(total), share, _counts(a.kernels, b.kernels), "")
    columns = ("part", *_TIMES, ">of it", ">kernels", "why")
    last = tuple(Cell(text, "strong") for text in ends)
    return Table(columns, [*rows, last], spare=("why", "of it", "less │ more"), bars="change")


def _counts(a: float, b: float) -> str:
    return f"{a:,.0f} → {b:,.0f}"


def _changes(rows: pd.DataFrame) -> Table:
    """Return the rows that change most: layers in tree order, ops and kernels by their change."""
    changed = rows[rows["change_ns"].abs() >= LEAST_NS]
    kept = changed[changed.index.isin(changed["change_ns"].abs().nlargest(_ROWS).index)]
    most = float(kept["change_ns"].abs().max())
    cells = [
        (name, *_numbers(row, most), row.match if row.match.startswith("only") else "")
        for name, row in zip(row_names(kept, "name"), rows_of(kept), strict=True)
    ]
    return Table(("name", *_TIMES, "in"), cells, total=len(changed), bars="change", spare=("less │ more",))


def _numbers(row: "pd.Series[float]", most: float) -> Row:
    """Return the cells of A, B, and the change."""
    mark = "soft" if abs(row.change_ns) < LEAST_NS else "good" if row.change_ns < 0 else "bad"
    cell = Cell(change(row.change_ns), mark, part=round(row.change_ns / most, 4))
    return (time(row.a_ns), time(row.b_ns), cell)
