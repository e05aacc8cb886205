"""Writes a document for a terminal."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text as Styled

from tracekit.reports.document.blocks import Block, Cell, Document, Facts, Listing, Name, Section, Shares, Table, Text
from tracekit.reports.words import middle_truncated, percent, printable, printable_lines, shortened

STYLES = {
    "headline": "bold",
    "strong": "bold",
    "soft": "dim",
    "good": "green",
    "bad": "red",
    "doubtful": "yellow",
    "predicted": "cyan",
    "compute": "red",
    "memory": "bright_blue",
    "launch": "yellow",
    "latency": "magenta",
    "transfer": "green",
}
_GAP = 3
"""Columns between two columns of a table."""
_SHORTEST_NAME, _LEAST_TEXT = 16, 24
_BAR = 12
AXIS = 24
"""Characters of the axis of intervals."""
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
    yield Styled(paragraph(text.text, width).plain, _style(text.mark))


def _style(mark: str) -> str:
    return " ".join(STYLES[word] for word in mark.split() if word in STYLES)


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


class _Column(NamedTuple):
    label: str
    cells: list[Styled]
    right: bool = False
    names: list[Name] | None = None

    @property
    def width(self) -> int:
        return max([cell_len(word) for word in self.label.split("\n")] + [cell.cell_len for cell in self.cells])

    @property
    def least(self) -> int:
        return self.width if self.right else min(self.width, _LEAST_TEXT)


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    columns = _columns(table, width)
    view = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title_justify="left", title_style="bold")
    view.title = Styled(printable(table.title)) if table.title else None
    tight = view.collapse_padding = _needed(columns, lambda column: column.least) > width
    for column in columns:
        side: Literal["left", "right"] = "right" if column.right else "left"
        fixed = column.names is not None or (column.right and not tight)
        view.add_column(column.label, justify=side, no_wrap=fixed, overflow="ellipsis" if fixed else "fold")
    rows = list(zip(*(column.cells for column in columns), strict=True))
    if rows and _needed(columns, lambda column: column.width) <= width:
        # One row of cells with several lines looks the same and is faster, because rich is slow per cell.
        rows = [tuple(Styled("\n").join(column.cells) for column in columns)]
    for row in rows:
        view.add_row(*row)
    yield view
    if table.left_out:
        yield Styled(table.left_out, "dim")


def _columns(table: Table, width: int) -> list[_Column]:
    """Return the columns that fit, with names that are short enough."""
    columns = [column for at in range(len(table.columns)) for column in _with_bar(table, at)]
    for label in table.spare:
        if _needed(columns, lambda column: column.least) > width:
            columns = [column for column in columns if column.label != label]
    if _needed(columns, lambda column: column.least) > width:
        columns = [column._replace(label=_wrapped(column)) for column in columns]
    room = width - _needed([column for column in columns if column.names is None], lambda column: column.width) - _GAP
    return [column._replace(cells=_cut(column, max(room, _SHORTEST_NAME))) for column in columns]


def _wrapped(column: _Column) -> str:
    """Return the label in lines that are as long as the cells, or as its longest word."""
    width = max((cell.cell_len for cell in column.cells), default=1)
    return "\n".join(textwrap.wrap(column.label, max(width, 1), break_long_words=False))


def _needed(columns: Sequence[_Column], width: Callable[[_Column], int]) -> int:
    return sum(map(width, columns)) + _GAP * (len(columns) - 1)


def _with_bar(table: Table, at: int) -> Iterator[_Column]:
    """Yield the column, and the column of its bars if it has any."""
    label, cells = table.columns[at], [row[at] for row in table.rows[: table.first]]
    names = [cell for cell in cells if isinstance(cell, Name)]
    shown = [_styled(cell) for cell in cells]
    yield _Column(label.removeprefix(">"), shown, label.startswith(">"), names if len(names) == len(cells) else None)
    parts = [cell if isinstance(cell, Cell) and cell.part is not None else None for cell in cells]
    if any(parts):
        label, draw = _BARS[table.bars]
        yield _Column(f"{label}{table.axis}", [draw(part) if part else Styled() for part in parts])


def _styled(cell: str | Cell | Name) -> Styled:
    if isinstance(cell, Name):
        return Styled(_indented(cell, printable(cell.text)))
    text = cell if isinstance(cell, str) else cell.text
    return Styled(printable(text), _style(cell.mark) if isinstance(cell, Cell) else "")


def _cut(column: _Column, room: int) -> list[Styled]:
    if column.names is None or column.width <= room:
        return column.cells
    return [Styled(_short(name, room)) for name in column.names]


def _short(name: Name, room: int) -> str:
    cut = middle_truncated if name.path else shortened
    return cut(_indented(name, printable(name.text)), room)


def _indented(name: Name, text: str) -> str:
    return "  " * name.depth + text + (f" ×{name.count}" if name.count > 1 else "")


def _share_bar(cell: Cell) -> Styled:
    """Return a bar in steps of an eighth of a character."""
    eighths = round(8 * _BAR * min(1.0, _length(cell)))
    return Styled("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), _style(cell.mark))


def _change_bar(cell: Cell) -> Styled:
    """Return a bar to the left for less, to the right for more."""
    bar = "█" * round(_BAR / 2 * abs(_length(cell)))
    less, more = (bar, "") if _length(cell) < 0 else ("", bar)
    return Styled.assemble((f"{less:>{_BAR // 2}}", "green"), ("│", "dim"), (f"{more:<{_BAR // 2}}", "red"))


def _length(cell: Cell) -> float:
    return cell.part if isinstance(cell.part, float) else 0.0


def _interval(cell: Cell) -> Styled:
    """Return a line from the lower to the upper end, with a mark at the middle."""
    ends = cell.part if isinstance(cell.part, tuple) else (0.0, 0.0, 0.0)
    low, middle, high = (min(max(round((AXIS - 1) * end), 0), AXIS - 1) for end in ends)
    row = [" " if at < low or at > high else "━" for at in range(AXIS)]
    row[middle] = "●"
    return Styled("".join(row), "cyan")


_BARS: dict[str, tuple[str, Callable[[Cell], Styled]]] = {
    "share": ("", _share_bar),
    "change": ("less │ more", _change_bar),
    "interval": ("", _interval),
}
_WRITERS: dict[type, Callable[[Any, int], Iterator[RenderableType]]] = {
    Text: _text,
    Listing: _listing,
    Facts: _facts,
    Section: _section,
    Shares: _shares,
    Table: _table,
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
