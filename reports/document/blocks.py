"""What a document is made of. A writer decides how it looks."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pandas as pd

from tracekit.reports.words import printable, rows_of

Mark = str
"""How a text is set apart: headline, strong, soft, good, bad, doubtful, code, a bound; "": not at all."""


class Block(msgspec.Struct, frozen=True):
    """A part of a document."""


class Text(Block, frozen=True):
    """A paragraph."""

    text: str
    mark: Mark = ""


class Cell(msgspec.Struct, frozen=True):
    text: str
    mark: Mark = ""
    part: float | tuple[float, ...] | None = None
    """Length of the bar beside the text as a fraction of the longest one, less than 0: to the other side; or the low,
    middle and high end of an interval as fractions of its axis."""
    href: str = ""
    help: str = ""


class Name(msgspec.Struct, frozen=True):
    """A name from a trace, which a writer may shorten: of `count` like layers, `depth` levels below the root."""

    text: str
    depth: int = 0
    count: int = 1
    path: bool = False
    """Whether the middle tells least, as in the path of a layer."""


Row = Sequence[str | Cell | Name]


class Table(Block, frozen=True):
    columns: Sequence[str]
    """Labels; one that begins with ">" is that of numbers, which are aligned right."""
    rows: Sequence[Row]
    title: str = ""
    first: int = 60
    """The most rows in a terminal; a page has all."""
    total: int = 0
    """The number of rows of which these are the most important ones; 0: these are all."""
    spare: Sequence[str] = ()
    """Labels of the columns that a narrow terminal leaves out, the first one first."""
    bars: Literal["share", "change", "interval"] = "share"
    axis: str = ""
    """The ends of the axis of intervals."""

    @property
    def left_out(self) -> str:
        """How many rows are not among the `first` ones, in words; "" if all are."""
        shown, total = min(len(self.rows), self.first), max(len(self.rows), self.total)
        return f"{shown} of {total:,}" if shown < total else ""


class Listing(Block, frozen=True):
    """Short lines, such as what to do next."""

    lines: Sequence[str]
    title: str = ""


class Facts(Block, frozen=True):
    """Pairs of a label and a text."""

    rows: Sequence[tuple[str, str]]


class Shares(Block, frozen=True):
    """Parts of a whole by name, the largest first."""

    rows: Sequence[tuple[str, float]]


class Code(Block, frozen=True):
    text: str


class Drawn(Block, frozen=True):
    """What only a page shows: `values` in the template of this name in templates/drawn."""

    template: str
    values: Any


class Section(Block, frozen=True):
    title: str
    blocks: Sequence[Block]
    note: str = ""
    """Said below the title in a page."""
    id: str = ""
    folded: bool = False


class Document(msgspec.Struct, frozen=True):
    title: str
    """The title of the page."""
    blocks: Sequence[Block]
    kind: str = ""
    """What the page says that it is, such as "sweep"."""
    styles: tuple[str, ...] = ()
    """Of the page, beside those of all pages."""


def problems(table: pd.DataFrame) -> list[Text]:
    """Return a line for each problem that is an error or a warning."""
    marks = {"error": "bad", "warning": "doubtful"}
    return [
        Text(f"{row.severity}: {printable(row.message)} {row.advice}", marks[row.severity])
        for row in rows_of(table)
        if row.severity in marks
    ]


def row_names(frame: pd.DataFrame, column: str) -> list[Name]:
    """Return the names of rows; those of patterns of layers with their depth and number."""
    ones = [1] * len(frame)
    depths, counts = frame.get("depth", ones), frame.get("count", ones)
    nested = "count" in frame
    return [
        Name(name.removeprefix("void "), depth if nested else 0, count if nested else 1, nested)
        for name, depth, count in zip(frame[column].astype(str), depths, counts, strict=True)
    ]
