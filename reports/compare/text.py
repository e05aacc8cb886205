"""A comparison as text for a terminal."""

from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.compare import Comparison
from tracekit.reports.compare.explanation import explained
from tracekit.reports.compare.names import (
    LEAST_NS,
    change,
    described,
    layer_patterns,
    named,
    parts,
    shortened,
    signed_percent,
    time,
)
from tracekit.reports.words import code, folded, percent, printable, printed, prose, rows_of, table

_ROWS = 15
_BAR = 12
_WIDE = 100
_NUMBERS_WIDTH = 44
_SHORTEST_NAME = 16
_LESS, _MORE = "green", "red"


def full(comparison: Comparison, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return the sentence, both sides, the difference, and the layers, ops and kernels that change most.

    `width` is in columns, by default the terminal's; `colour` is on by default if standard output is a terminal.
    """
    return printed(lambda columns: _parts(comparison, columns), width=width, colour=colour)


def _parts(comparison: Comparison, width: int) -> RenderableType:
    lists = {
        "Layers": _largest_in_tree(layer_patterns(comparison.layers)),
        "Ops": named(comparison.ops),
        "Kernels": named(comparison.kernels),
    }
    changes = [(Text(), _changes(title, rows, width)) for title, rows in lists.items() if len(rows)]
    return Group(
        Text(explained(comparison), style="bold"),
        _sides(comparison),
        *(Padding(Text(note, style="yellow"), (0, 0, 0, 2)) for note in comparison.notes),
        Text(),
        _difference(comparison, width),
        *(part for pair in changes for part in pair),
    )


def _sides(comparison: Comparison) -> Table:
    view = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    view.add_column(style="bold", no_wrap=True)
    view.add_column(justify="right", style="bold", no_wrap=True)
    view.add_column(overflow="fold")
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        description = Text.assemble(printable(side.name), "  ", (described(side), "dim"))
        view.add_row(f" {letter}", f"{time(side.latency_ns)} per step", description)
    return view


def _difference(comparison: Comparison, width: int) -> Table:
    view = _headed("Where the difference is, per step", "", width)
    view.add_column("kernels", justify="right", no_wrap=True)
    rows = parts(comparison)
    largest = float(rows["change_ns"].abs().max()) if len(rows) else 0.0
    for row in rows_of(rows):
        counts = f"{row.a_kernels:,.0f} → {row.b_kernels:,.0f}" if row.kind == "busy" else str(row.kind)
        view.add_row(Text(str(row.name)), *_numbers(row, largest, width), Text(counts, style="dim"))
    view.add_section()
    a, b, total = comparison.a.latency_ns, comparison.b.latency_ns, comparison.change_ns
    share = f"{'+' if total > 0 else '−'}{percent(abs(total) / a)}" if a and total else ""
    cells = ("the step", time(a), time(b), change(total), *([""] if width >= _WIDE else []), share)
    view.add_row(*(Text(text, style="bold") for text in cells))
    return view


def _largest_in_tree(patterns: pd.DataFrame) -> pd.DataFrame:
    """Return the layers that change most, in tree order."""
    changed = patterns[patterns["change_ns"].abs() >= LEAST_NS]
    largest = changed.loc[changed["change_ns"].abs().nlargest(_ROWS).index.intersection(changed.index)]
    kept = patterns[patterns.index.isin(largest.index)]
    times = [f" ×{count}" if count > 1 else "" for count in kept["count"]]
    names = ["  " * depth + name + many for depth, name, many in zip(kept["depth"], kept["name"], times, strict=True)]
    return kept.assign(name=names)


def _changes(title: str, rows: pd.DataFrame, width: int) -> Table:
    first = rows.head(_ROWS)
    more = f" (the {_ROWS} largest changes of {len(rows):,})" if len(rows) > _ROWS else ""
    view = _headed(f"{title}{more}", title.lower().removesuffix("s"), width)
    view.add_column("in", no_wrap=True)
    limit = max(_SHORTEST_NAME, width - _NUMBERS_WIDTH - (_BAR + 3 if width >= _WIDE else 0))
    largest = float(first["change_ns"].abs().max())
    for row in rows_of(first):
        name = Text(shortened(row.name, limit))
        view.add_row(name, *_numbers(row, largest, width), row.match if row.match.startswith("only") else "")
    return view


def _numbers(row: Any, largest: float, width: int) -> tuple[RenderableType, ...]:
    style = "dim" if abs(row.change_ns) < LEAST_NS else _LESS if row.change_ns < 0 else _MORE
    numbers = (time(row.a_ns), time(row.b_ns), Text(change(row.change_ns), style=style))
    return (*numbers, _bar(row.change_ns, largest)) if width >= _WIDE else numbers


def _bar(value: float, largest: float) -> Text:
    """Return a bar to the left for less time in B, to the right for more."""
    length = round(_BAR / 2 * abs(value) / largest) if largest else 0
    less, more = ("█" * length if value < 0 else ""), ("█" * length if value > 0 else "")
    return Text.assemble((f"{less:>{_BAR // 2}}", _LESS), ("│", "dim"), (f"{more:<{_BAR // 2}}", _MORE))


def _headed(title: str, name: str, width: int) -> Table:
    view = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    view.add_column(name, no_wrap=True)
    for column in ("A", "B", "change"):
        view.add_column(column, justify="right", no_wrap=True)
    if width >= _WIDE:
        view.add_column("less │ more", no_wrap=True, justify="center")
    return view


_COMMENT_ROWS = 20
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
            _sides_table(comparison),
            *(["\n>\n".join(notes)] if notes else []),
            _difference_table(comparison),
            *(folded(title, _changes_table(rows)) for title, rows in lists.items() if len(rows)),
            "",
        ]
    )


def _sides_table(comparison: Comparison) -> str:
    sides = (("A", comparison.a), ("B", comparison.b))
    rows = [(letter, code(side.name), prose(described(side)), time(side.latency_ns)) for letter, side in sides]
    return table(("", "run", "what it is", ">per step"), rows)


def _difference_table(comparison: Comparison) -> str:
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


def _changes_table(rows: pd.DataFrame) -> str:
    changed = rows[rows["change_ns"].abs() >= LEAST_NS]
    largest = changed[changed.index.isin(changed["change_ns"].abs().nlargest(_COMMENT_ROWS).index)]
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
