"""Writes a document for a terminal."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text as Styled

from tracekit.reports.document.blocks import Block, Document, Facts, Listing, Section, Shares, Table, Text
from tracekit.reports.document.columns import STYLES, laid_out, style
from tracekit.reports.words import percent, printable, printable_lines

_SHADES = {"compute": "█", "memory": "▓", "launch": "░", "latency": "▒", "transfer": "▚", "unknown": "·"}
"""Characters that are distinct without colour."""


def terminal(document: Document, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return the document as text. Names are shortened to the width."""
    return printed(lambda columns: Group(*_spaced(document.blocks, columns)), width=width, colour=colour)


def _spaced(blocks: Sequence[Block], width: int) -> Iterator[RenderableType]:
    """Yield the blocks, with empty lines where a part ends or begins."""
    before: Block | None = None
    for block in blocks:
        shown = list(_WRITERS[type(block)](block, width)) if type(block) in _WRITERS else []
        if shown:
            ended = isinstance(before, Table | Facts | Section)
            begins = isinstance(block, Facts | Section) or (isinstance(block, Table) and bool(block.title))
            yield from [Styled()] if before and (ended or begins) else []
            yield from shown
            before = block


def _text(text: Text, width: int) -> Iterator[RenderableType]:
    yield Styled(paragraph(text.text, width).plain, style(text.mark))


def _listing(listing: Listing, width: int) -> Iterator[RenderableType]:
    if listing.title and listing.lines:
        yield paragraph(f"{listing.title}: {'; '.join(listing.lines)}", width)
    else:
        yield from (paragraph(line, width) for line in listing.lines)


def _facts(facts: Facts, _: int) -> Iterator[RenderableType]:
    view = Grid(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    view.add_column(style="dim", no_wrap=True)
    view.add_column(overflow="fold")
    for label, text in facts.rows:
        view.add_row(f"  {label}", Styled(printable(text)))
    yield view


def _shares(shares: Shares, width: int) -> Iterator[RenderableType]:
    """Yield a bar and its legend."""
    length = max(20, min(60, width - 16))
    ends = [round(length * sum(share for _, share in shares.rows[: n + 1])) for n in range(len(shares.rows))]
    bar, legend, at = Styled("  "), Styled("  "), 0
    for (name, share), end in zip(shares.rows, ends, strict=True):
        bar.append(_SHADES[name] * (end - at), STYLES.get(name, "dim"))
        legend.append(f"{_SHADES[name]} ", STYLES.get(name, "dim")).append(f"{name} {percent(share)}   ")
        at = end
    yield from (Styled(), bar, legend)


def _section(section: Section, width: int) -> Iterator[RenderableType]:
    shown = list(_spaced(section.blocks, width))
    if shown:
        yield Styled(printable(section.title), "bold")
        yield from shown


_WRITERS: dict[type, Callable[[Any, int], Iterator[RenderableType]]] = {
    Text: _text,
    Listing: _listing,
    Facts: _facts,
    Section: _section,
    Shares: _shares,
    Table: laid_out,
}


def printed(render: Callable[[int], RenderableType], *, width: int | None = None, colour: bool | None = None) -> str:
    """Return as text what `render` returns for a width in columns (by default the terminal's).

    By default the text has colours if standard output is a terminal and NO_COLOR is not set. Markup in it is not
    interpreted, and control characters are replaced.
    """
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ if colour is None else colour
    width = width or shutil.get_terminal_size((120, 40)).columns
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False, markup=False, emoji=False
    )
    console.print(_Printable(render(width)))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def paragraph(text: str, width: int, indent: str = "  ") -> Styled:
    """Return `text` in lines of at most `width` columns; all lines but the first are indented."""
    return Styled(textwrap.fill(text, width, subsequent_indent=indent))


class _Printable:
    """A renderable without the control characters in its texts."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
