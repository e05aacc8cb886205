"""Reads the CSV that `ncu --csv` prints after other output of the tool and the program.

In `--page raw`, launches are rows, metrics are columns, and the row below the header has the units.
"""

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import nan

import msgspec
import pandas as pd

from tracekit.analyzers.core import facts
from tracekit.analyzers.trace.ncu import HEADER

_NAME, _NUMBER, _OF_DETAILS = "Kernel Name", "ID", "Metric Name"


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


def split(data: bytes, wanted: Callable[[str], bool]) -> Lines:
    """Split a report into rows.

    Fields have no line breaks, so a broken line affects no other. The raw page has a thousand columns, of which only
    those that are `wanted` are kept, and only rows as long as the header, because the columns of others are unknown.
    Rows of the details page may have any length. Raises ValueError without a header.
    """
    start = HEADER.search(data)
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


def raw_launches(lines: Lines, wanted: Callable[[str], bool]) -> Launches:
    """Read the columns that are `wanted`, those of IDENTITY, and "ID"."""
    first, more = _first_report([row for row in lines.rows if row], list(lines.columns))
    number = lines.columns.index("ID")
    units = next((row for row in first if _is_units(row, lines.columns)), [""] * len(lines.columns))
    rows = [row for row in first if row[number].strip().isdigit()]
    unreadable, cut = lines.losses(bool)
    odd = sum(row not in (units, list(lines.columns)) for row in first) - len(rows)
    metrics = _raw_metrics(lines.columns, units, rows, wanted)
    return Launches(_identity(lines.columns, rows), metrics, unreadable + odd + more, cut)


def _first_report(rows: list[list[str]], header: list[str]) -> tuple[list[list[str]], int]:
    """Return the rows before a different header, and the number of rows after it. The same header may be repeated."""
    number = header.index("ID")
    for i, row in enumerate(rows):
        if row[number] == "ID" and row != header:
            return rows[:i], len(rows) - i - 1
    return rows, 0


def _is_units(row: list[str], columns: tuple[str, ...]) -> bool:
    return not row[columns.index("ID")].strip() and not row[columns.index(NAME)].strip()


def _identity(columns: tuple[str, ...], rows: list[list[str]]) -> pd.DataFrame:
    at = {name: columns.index(name) for name in IDENTITY if name in columns}
    return pd.DataFrame(
        {name: [row[at[name]] if name in at else "" for row in rows] for name in IDENTITY}, dtype=object
    )


def _raw_metrics(
    columns: tuple[str, ...], units: list[str], rows: list[list[str]], wanted: Callable[[str], bool]
) -> pd.DataFrame:
    at = {name: i for i, name in enumerate(columns) if wanted(name)}
    mark = decimal_mark(row[i] for row in rows for i in at.values())
    return pd.DataFrame(
        {name: [parse(row[i], mark) * scale(units[i])[0] for row in rows] for name, i in at.items()},
        index=range(len(rows)),
        dtype="float64",
    )


_LAUNCH = ("Process ID", "ID")
_METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")


def details_launches(lines: Lines, wanted: Callable[[str], bool]) -> Launches:
    """Read the first report. A row that ends before its value is left out; other rows of its launch are kept."""
    at = {name: i for i, name in enumerate(lines.columns)}
    width = max(at[name] for name in (*_LAUNCH, *_METRIC, *IDENTITY) if name in at) + 1
    whole = [row for row in lines.rows if len(row) >= width]
    report = whole[: next((i for i, row in enumerate(whole) if row[at["ID"]] == "ID"), len(whole))]
    rows = [row for row in report if row[at["ID"]].strip().isdigit()]
    odd = len(whole) - len(rows)
    unreadable, cut = lines.losses(lambda row: len(row) >= width)
    key = [tuple(row[at[name]] for name in _LAUNCH if name in at) for row in rows]
    number = {launch: i for i, launch in enumerate(dict.fromkeys(key))}
    first = {number[launch]: row for launch, row in zip(reversed(key), reversed(rows), strict=True)}
    identity = {name: [first[i][at[name]] if name in at else "" for i in range(len(number))] for name in IDENTITY}
    cells = [(number[launch], *_cell(row, at)) for launch, row in zip(key, rows, strict=True)]
    metrics = _details_metrics(cells, len(number), wanted)
    return Launches(pd.DataFrame(identity, dtype=object), metrics, unreadable + odd, cut)


def _cell(row: list[str], at: dict[str, int]) -> tuple[str, float, str]:
    """Return the tool's name of the metric, the factor to base units, and the value."""
    section, name, unit, value = (row[at[column]] if column in at else "" for column in _METRIC)
    factor, base = scale(unit)
    return (name if "__" in name else _metric_of(section, name, base)), factor, value


@lru_cache
def _metric_of(section: str, label: str, unit: str) -> str:
    """Return the metric of a label, in the section with the longest name that begins the row's; "" if it is unknown."""
    rows = facts(__file__)["labels"]
    known = max((row[0] for row in rows if section.startswith(row[0])), key=len, default="")
    return next((metric for *labelled, metric in rows if labelled == [known, label, unit]), "")


def _details_metrics(
    cells: list[tuple[int, str, float, str]], size: int, wanted: Callable[[str], bool]
) -> pd.DataFrame:
    mark = decimal_mark(value for _, _, _, value in cells)
    known = [cell for cell in cells if wanted(cell[1])]
    columns = {name: [float("nan")] * size for name in dict.fromkeys(cell[1] for cell in known)}
    for launch, name, factor, value in known:
        columns[name][launch] = parse(value, mark) * factor
    return pd.DataFrame(columns, index=range(size), dtype="float64")


_GROUPED = re.compile(r"[\s'\u2019\u00a0\u202f]")
_OTHER = {".": ",", ",": "."}
_ENDS_IN_A_GROUP = re.compile(r"\d{1,3}[.,]\d{3}")


def decimal_mark(texts: Iterable[str]) -> str:
    """Return the decimal mark of the numbers in one file, "." or ",".

    A mark before fewer or more than three digits, or after another mark, is decimal. A mark that occurs twice separates
    thousands.
    """
    votes = {".": 0, ",": 0}
    for text in set(texts):
        if mark := _shown_by(text.strip()):
            votes[mark] += 1
    return "," if votes[","] > votes["."] else "."


def parse(text: str, mark: str) -> float:
    """Parse a number; NaN for any other text ("", "n/a", "PolicySpread", a list of instances)."""
    whole, separator, fraction = _GROUPED.sub("", text).partition(mark)
    try:
        return float(whole.replace(_OTHER[mark], "") + separator.replace(",", ".") + fraction)
    except ValueError:
        return nan


def _shown_by(text: str) -> str:
    dots, commas = text.count("."), text.count(",")
    if dots and commas:
        return "." if text.rfind(".") > text.rfind(",") else ","
    if dots + commas == 1:
        return "" if _ENDS_IN_A_GROUP.fullmatch(text) else "." if dots else ","
    return "," if dots else "." if commas else ""


_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_NAMES = {"s": "second", "sec": "second", "b": "byte", "bytes": "byte", "hz": "hz", "Hz": "hz"}
_SCALED = re.compile(r"([numKkMGTP]?)(second|sec|s|byte|bytes|b|hz|Hz|inst|cycle|sector|warp|thread|request)")


@cache
def scale(unit: str) -> tuple[float, str]:
    """Return the factor to base units (seconds, bytes, hz, bytes per second), and the unit without prefixes."""
    parts = [_part(part) for part in unit.strip().split("/")]
    factor, names = parts[0][0], [name for _, name in parts]
    for below, _ in parts[1:]:
        factor /= below
    return factor, "/".join(names)


def _part(text: str) -> tuple[float, str]:
    match = _SCALED.fullmatch(text)
    if match is None:
        return 1.0, text
    prefix, name = match.groups()
    return _PREFIXES[prefix], _NAMES.get(name, name)
