"""Reads `--page raw`, in which launches are rows, metrics are columns, and the row below the header has the units."""

import re
from collections.abc import Callable, Iterable
from functools import cache
from math import nan

import pandas as pd

from tracekit.analyzers.trace.ncu.lines import IDENTITY, NAME, Launches, Lines


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


_LIGHT = "GPU Speed Of Light"
_LABELS = {
    (_LIGHT, "Duration", "second"): "gpu__time_duration.sum",
    (_LIGHT, "DRAM Throughput", "%"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    (_LIGHT, "SOL DRAM", "%"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    (_LIGHT, "Compute (SM) Throughput", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    (_LIGHT, "SM Throughput", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    (_LIGHT, "SOL SM", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("Memory Workload Analysis", "Memory Throughput", "byte/second"): "dram__bytes.sum.per_second",
    ("Occupancy", "Achieved Occupancy", "%"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Launch Statistics", "Registers Per Thread", "register/thread"): "launch__registers_per_thread",
    ("Launch Statistics", "# SMs", "SM"): "launch__sm_count",
}
_SECTIONS = sorted({section for section, _, _ in _LABELS}, key=len, reverse=True)
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
    known = next((known for known in _SECTIONS if section.startswith(known)), "")
    return (name if "__" in name else _LABELS.get((known, name, base), "")), factor, value


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
