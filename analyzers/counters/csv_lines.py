"""The CSV that `ncu --csv` prints, after whatever the tool and the program printed before it."""

import csv
import re
from dataclasses import dataclass

_ID, _NAME = "ID", "Kernel Name"
_HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,[^\r\n]*Kernel Name', re.MULTILINE)


@dataclass(frozen=True)
class Lines:
    """The header's columns, the rows below it (of any length), and what could not be read."""

    columns: tuple[str, ...]
    rows: list[list[str]]
    unreadable: int
    cut: bool


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
    if columns is None or _NAME not in columns:
        raise ValueError("no header")
    rows = [(line, _fields(line)) for line in below if _is_row(line)]
    unreadable = sum(fields is None for _, fields in rows)
    cut = bool(rows) and rows[-1][1] is None and below[-1] == rows[-1][0]
    return Lines(tuple(columns), [fields for _, fields in rows if fields], unreadable - cut, cut)


def _is_row(line: str) -> bool:
    """Neither empty nor a message of the tool, ==PROF== or ==WARNING==."""
    return bool(line.strip()) and not line.startswith("==")


def _fields(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), None)
    except csv.Error:
        return None
