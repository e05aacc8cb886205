"""Reads `--page raw`, in which launches are rows, metrics are columns, and the row below the header has the units."""

from collections.abc import Callable

import pandas as pd

from tracekit.analyzers.counters.counted_launches import IDENTITY, NAME, Launches
from tracekit.analyzers.counters.csv_lines import Lines
from tracekit.analyzers.counters.decimals import decimal_mark, parse
from tracekit.analyzers.counters.units import scale


def launches(lines: Lines, wanted: Callable[[str], bool]) -> Launches:
    """Read the columns that are `wanted`, those of IDENTITY, and "ID"."""
    first, more = _first_report([row for row in lines.rows if row], list(lines.columns))
    number = lines.columns.index("ID")
    units = next((row for row in first if _is_units(row, lines.columns)), [""] * len(lines.columns))
    rows = [row for row in first if row[number].strip().isdigit()]
    unreadable, cut = lines.losses(bool)
    odd = sum(row not in (units, list(lines.columns)) for row in first) - len(rows)
    metrics = _metrics(lines.columns, units, rows, wanted)
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


def _metrics(
    columns: tuple[str, ...], units: list[str], rows: list[list[str]], wanted: Callable[[str], bool]
) -> pd.DataFrame:
    at = {name: i for i, name in enumerate(columns) if wanted(name)}
    mark = decimal_mark(row[i] for row in rows for i in at.values())
    return pd.DataFrame(
        {name: [parse(row[i], mark) * scale(units[i])[0] for row in rows] for name, i in at.items()},
        index=range(len(rows)),
        dtype="float64",
    )
