"""Lays out tables for a terminal: the columns that fit, bars, and names that are short enough."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text as Styled

from tracekit.reports.document.blocks import Cell, Name, Table
from tracekit.reports.words import middle_truncated, printable, shortened

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


def style(mark: str) -> str:
    return " ".join(STYLES[word] for word in mark.split() if word in STYLES)


class _Column:
    def __init__(self, label: str, cells: list[Styled], right: bool = False, names: list[Name] | None = None) -> None:
        self.label, self.cells, self.right, self.names = label, cells, right, names

    @property
    def texts(self) -> list[str]:
        return [self.label, *(cell.plain for cell in self.cells)]

    @cached_property
    def width(self) -> int:
        return max([cell_len(word) for word in self.label.split("\n")] + [cell.cell_len for cell in self.cells])

    @property
    def least(self) -> int:
        return self.width if self.right else min(self.width, _LEAST_TEXT)


def laid_out(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield the table, whose names are shortened to the width, and what it leaves out."""
    columns = _columns(table, width)
    fits = bool(table.rows) and _needed(columns, lambda column: column.width) <= width
    fits = fits and not any("\n" in text for column in columns for text in column.texts)
    if fits and table.title:
        yield Styled(printable(table.title), "bold")
    yield _text(columns) if fits else _grid(table, columns, width)
    if table.left_out:
        yield Styled(table.left_out, "dim")


def _text(columns: Sequence[_Column]) -> Styled:
    """Return a table that needs no wrapping as one text, because rich is slow per cell."""
    head = _line([Styled(column.label) for column in columns], columns)
    head.stylize("bold")
    rule = Styled("─" * _needed(columns, lambda column: column.width))
    rows = zip(*(column.cells for column in columns), strict=True)
    text = Styled("\n").join([head, rule, *(_line(row, columns) for row in rows)])
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _line(cells: Sequence[Styled], columns: Sequence[_Column]) -> Styled:
    line = Styled()
    for at, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        blank = " " * (column.width - cell.cell_len)
        line.append(" " * _GAP * (at > 0) + blank * column.right)
        line.append_text(cell).append(blank * (not column.right))
    return line


def _grid(table: Table, columns: Sequence[_Column], width: int) -> Grid:
    """Return a table that is narrower than its cells."""
    view = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title_justify="left", title_style="bold")
    view.title = Styled(printable(table.title)) if table.title else None
    tight = view.collapse_padding = _needed(columns, lambda column: column.least) > width
    for column in columns:
        side: Literal["left", "right"] = "right" if column.right else "left"
        fixed = column.names is not None or (column.right and not tight)
        view.add_column(column.label, justify=side, no_wrap=fixed, overflow="ellipsis" if fixed else "fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        view.add_row(*row)
    return view


def _columns(table: Table, width: int) -> list[_Column]:
    """Return the columns that fit, with names that are short enough."""
    columns = [column for at in range(len(table.columns)) for column in _with_bar(table, at)]
    for label in table.spare:
        if _needed(columns, lambda column: column.least) > width:
            columns = [column for column in columns if column.label != label]
    if _needed(columns, lambda column: column.least) > width:
        columns = [_Column(_wrapped(column), column.cells, column.right, column.names) for column in columns]
    room = width - _needed([column for column in columns if column.names is None], lambda column: column.width) - _GAP
    cells = (_cut(column, max(room, _SHORTEST_NAME)) for column in columns)
    return [_Column(column.label, cut, column.right, column.names) for column, cut in zip(columns, cells, strict=True)]


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
    return Styled(printable(text), style(cell.mark) if isinstance(cell, Cell) else "")


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
    return Styled("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style(cell.mark))


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
