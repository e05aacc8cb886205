"""A comparison as Markdown, for a comment on GitHub."""

from typing import Any

import pandas as pd

from tracekit.analyzers.comparison.comparison import Comparison
from tracekit.reports.comparison.matched_rows import layer_patterns, named, parts, shortened
from tracekit.reports.comparison.part_names import LEAST_NS, change, described, signed_percent, time
from tracekit.reports.comparison.sentence import explained
from tracekit.reports.markdown_text import code, folded, prose, table
from tracekit.reports.table_rows import rows_of

_ROWS = 20
_NAME = 60
_TIMES = (">A", ">B", ">change")


def render(comparison: Comparison) -> str:
    """Return Markdown: the sentence, both sides, the difference, and folded tables of layers, ops and kernels."""
    notes = [f"> {prose(note)}" for note in comparison.notes]
    lists = {
        "Layers": layer_patterns(comparison.layers),
        "Ops": named(comparison.ops),
        "Kernels": named(comparison.kernels),
    }
    return "\n\n".join(
        [
            f"**{prose(explained(comparison))}**",
            _sides(comparison),
            *(["\n>\n".join(notes)] if notes else []),
            _difference(comparison),
            *(folded(title, _changes(rows)) for title, rows in lists.items() if len(rows)),
            "",
        ]
    )


def _sides(comparison: Comparison) -> str:
    sides = (("A", comparison.a), ("B", comparison.b))
    rows = [(letter, code(side.name), prose(described(side)), time(side.latency_ns)) for letter, side in sides]
    return table(("", "run", "what it is", ">per step"), rows)


def _difference(comparison: Comparison) -> str:
    total = comparison.change_ns
    rows: list[tuple[str, ...]] = [
        (prose(str(row.name)), time(row.a_ns), time(row.b_ns), change(row.change_ns), signed_percent(row.share))
        for row in rows_of(parts(comparison))
    ]
    ends = (
        time(comparison.a.latency_ns),
        time(comparison.b.latency_ns),
        change(total),
        signed_percent(1.0 if total else 0.0),
    )
    rows.append(("**the step**", *(f"**{text}**" for text in ends)))
    return table(("per step", *_TIMES, ">of the difference"), rows)


def _changes(rows: pd.DataFrame) -> str:
    changed = rows[rows["change_ns"].abs() >= LEAST_NS]
    largest = changed[changed.index.isin(changed["change_ns"].abs().nlargest(_ROWS).index)]
    cells = [
        (
            _name(row),
            time(row.a_ns),
            time(row.b_ns),
            change(row.change_ns),
            row.match if row.match.startswith("only") else "",
        )
        for row in rows_of(largest)
    ]
    more = f"\n\nThe {len(largest)} largest of {len(changed)}." if len(changed) > len(largest) else ""
    return table(("name", *_TIMES, "in"), cells) + more


def _name(row: Any) -> str:
    """Return the name of a row (a layer's is indented below its parent), and the number of layers in the row."""
    count = getattr(row, "count", 1)
    many = f" × {row.count}" if isinstance(count, int) and count > 1 else ""
    return "&emsp;" * getattr(row, "depth", 0) + code(shortened(row.name, _NAME)) + many
