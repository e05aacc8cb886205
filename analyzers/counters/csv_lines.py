"""The CSV that `ncu --csv` prints, after whatever the tool and the program printed before it."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass

_ID, _NAME = "ID", "Kernel Name"
_HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,[^\r\n]*Kernel Name', re.MULTILINE)


@dataclass(frozen=True)
class Lines:
    """The header's columns and the rows below it, of any length; one that could not be read is empty."""

    columns: tuple[str, ...]
    rows: list[list[str]]
    open_end: bool
    """The last line does not end."""

    def losses(self, readable: Callable[[list[str]], bool]) -> tuple[int, bool]:
        """(rows that are not readable, whether the file is cut off in another one, its last)."""
        bad = sum(not readable(row) for row in self.rows)
        cut = self.open_end and bool(self.rows) and not readable(self.rows[-1])
        return bad - cut, cut


def has_header(head: bytes) -> bool:
    return _HEADER.search(head) is not None


def split(data: bytes) -> Lines:
    """Each line by itself: a report has no line breaks inside its fields, and a broken line then costs only itself.

    Raises ValueError without a header.
    """
    found = _HEADER.search(data)
    if found is None:
        raise ValueError("no header")
    text = data[found.start() :].decode("utf-8-sig", "replace")
    header, *below = text.split("\n")
    columns = _fields(header)
    if _NAME not in columns:
        raise ValueError("no header")
    rows = [_fields(line) for line in below if _is_row(line)]
    return Lines(tuple(columns), rows, open_end=_is_row(below[-1]) if below else False)


def _is_row(line: str) -> bool:
    """Neither empty nor a message of the tool, ==PROF== or ==WARNING==."""
    return bool(line.strip()) and not line.startswith("==")


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), [])
    except csv.Error:
        return []
