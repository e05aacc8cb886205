"""Splits the CSV that `ncu --csv` prints after other output of the tool and the program."""

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import pandas as pd

_NAME, _NUMBER, _OF_DETAILS = "Kernel Name", "ID", "Metric Name"
_HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,[^\r\n]*Kernel Name', re.MULTILINE)


class Lines(msgspec.Struct, frozen=True):
    """The columns and the rows of a report. A row that could not be read is empty."""

    columns: tuple[str, ...]
    rows: list[list[str]]
    open_end: bool
    """Whether the last line has no line break."""

    @property
    def of_details(self) -> bool:
        return _OF_DETAILS in self.columns

    def losses(self, readable: Callable[[list[str]], bool]) -> tuple[int, bool]:
        """Return the number of unreadable rows, and whether the file is cut off in one more row, its last."""
        bad = sum(not readable(row) for row in self.rows)
        cut = self.open_end and bool(self.rows) and not readable(self.rows[-1])
        return bad - cut, cut


def has_header(head: bytes) -> bool:
    return _HEADER.search(head) is not None


def split(data: bytes, wanted: Callable[[str], bool]) -> Lines:
    """Split a report into rows.

    Fields have no line breaks, so a broken line affects no other. The raw page has a thousand columns, of which only
    those that are `wanted` are kept, and only rows as long as the header, because the columns of others are unknown.
    Rows of the details page may have any length. Raises ValueError without a header.
    """
    start = _HEADER.search(data)
    if start is None:
        raise ValueError("no header")
    text = data[start.start() :].decode("utf-8-sig", "replace")
    header, *below = text.split("\n")
    columns = _fields(header)
    if not {_NAME, _NUMBER} <= set(columns):
        raise ValueError("no header")
    rows: Iterable[list[str]] = (_fields(line) for line in below if _is_row(line))
    if _OF_DETAILS not in columns:
        kept, width = [i for i, name in enumerate(columns) if wanted(name)], len(columns)
        rows = ([row[i] for i in kept] if len(row) == width else [] for row in rows)
        columns = [columns[i] for i in kept]
    return Lines(tuple(columns), list(rows), open_end=_is_row(below[-1]) if below else False)


def _is_row(line: str) -> bool:
    """Return whether the line is neither empty nor a message of the tool, ==PROF== or ==WARNING==."""
    return bool(line.strip()) and not line.startswith("==")


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), [])
    except csv.Error:
        return []


@dataclass(frozen=True)
class Launches:
    """The launches of a report, in order. Both frames have one row per launch."""

    identity: pd.DataFrame
    """Text columns IDENTITY; "" if not reported."""
    metrics: pd.DataFrame
    """float64 columns with the tool's names of metrics, in seconds, bytes, hz or percent; NaN if not reported."""
    unreadable: int = 0
    """Number of lines that could not be read."""
    cut: bool = False
    """Whether the last launch is incomplete."""


NAME, GRID, BLOCK, DEVICE_ID, STREAM, CAPABILITY = "Kernel Name", "Grid Size", "Block Size", "Device", "Stream", "CC"
DEVICE_NAME = "device__attribute_display_name"
IDENTITY = (NAME, GRID, BLOCK, DEVICE_ID, STREAM, CAPABILITY, DEVICE_NAME)
