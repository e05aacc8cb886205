"""`--page raw`: a row a launch, a column a metric, units in the row below the header."""

from collections.abc import Callable

import pandas as pd

from tracekit.analyzers.counters.csv_lines import Lines
from tracekit.analyzers.counters.decimals import decimal_mark, parse
from tracekit.analyzers.counters.launches import IDENTITY, Launches
from tracekit.analyzers.counters.units import scale


def launches(lines: Lines, wanted: Callable[[str], bool]) -> Launches:
    """`lines` hold the columns that are wanted, and those of IDENTITY and "ID"."""
    number = lines.columns.index("ID")
    whole = [row for row in lines.rows if row]
    units = next((row for row in whole if not row[number].strip()), [""] * len(lines.columns))
    rows = [row for row in whole if row[number].strip().isdigit()]
    unreadable, cut = lines.losses(bool)
    metrics = _metrics(lines.columns, units, rows, wanted)
    return Launches(_identity(lines.columns, rows), metrics, unreadable, cut)


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
