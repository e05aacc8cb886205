"""The tables of an analysis for a terminal."""

import math
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.results import Analysis
from tracekit.reports.layer_patterns import layer_patterns
from tracekit.reports.names import middle_truncated, printable, shortened
from tracekit.reports.numbers import duration, percent, quantity, significant
from tracekit.reports.table_rows import rows_of
from tracekit.reports.terminal_summary import COLOURS

_NAMES = {"layers": "path", "layer_types": "type", "phases": "name", "ops": "name", "kernels": "name"}
_ROWS = 25
_NUMBERS_WIDTH, _COUNTS_WIDTH = 54, 25
_SHORTEST_NAME = 16
_USUAL, _WIDE = 90, 110
_BAR = 10


def tables(analysis: Analysis, width: int) -> list[Table]:
    """Return the tables that have rows, each with at most `_ROWS` of them, for `width` columns."""
    main = [_table(analysis, table, width) for table in _NAMES if not getattr(analysis, table).empty]
    compared = [] if analysis.counters_comparison.empty else [_counters(analysis)]
    return [*main, *compared, *([_problems(analysis)] if not analysis.problems.empty else [])]


def _table(analysis: Analysis, table: str, width: int) -> Table:
    frame = layer_patterns(analysis.layers) if table == "layers" else getattr(analysis, table)
    time = "GPU time" if analysis.source.device == "gpu" else "CPU time"
    view = _headed(_title(analysis, table, len(frame)), table.replace("_", " ").removesuffix("s"))
    for column in ("calls", time, "share"):
        view.add_column(column, justify="right", no_wrap=True)
    drawn, counted = width >= _WIDE, width >= _USUAL
    if drawn:
        view.add_column("", no_wrap=True)
    for column in ("FLOPs", "bytes") if counted else ():
        view.add_column(column, justify="right", no_wrap=True)
    for column in ("bound", "own bound"):
        view.add_column(column, no_wrap=True)
    numbers = _NUMBERS_WIDTH + (_COUNTS_WIDTH if counted else 0) + (_BAR + 3 if drawn else 0)
    limit = max(_SHORTEST_NAME, width - numbers)
    longest = _longest(frame, table)
    cut = middle_truncated if table == "layers" else shortened
    names = [cut(printable(name), limit) for name in _names(longest, table)]
    rows = [_cells(name, row, drawn, counted) for name, row in zip(names, rows_of(longest), strict=True)]
    if rows:  # One row with multi-line cells looks the same and is faster, because rich is slow per cell.
        view.add_row(*(Text("\n").join(column) for column in zip(*rows, strict=True)))
    return view


def _longest(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows with the largest share: layers in tree order, other tables by time."""
    chosen = frame["share"].nlargest(_ROWS).index
    longest = frame[frame.index.isin(chosen)] if table == "layers" else frame.loc[chosen]
    return longest[longest["busy_ns"] > 0]


def _cells(name: str, row: Any, drawn: bool, counted: bool) -> list[Text]:
    """Return the cells of one row; a bar is added if `drawn`, FLOPs and bytes if `counted`."""
    bounds = [Text(bound, style=COLOURS.get(bound, "")) for bound in (row.bound, row.own_bound)]
    bar = [Text(_bar(row.share), style=bounds[0].style)] if drawn else []
    counts = (quantity(row.flops, "FLOP"), quantity(row.bytes, "B")) if counted else ()
    numbers = (f"{row.calls:,}", duration(row.busy_ns / 1000), percent(row.share))
    return [*map(Text, (name, *numbers)), *bar, *map(Text, counts), *bounds]


def _bar(share: float) -> str:
    """Return a bar of block characters, in steps of an eighth of a block."""
    eighths = round(8 * _BAR * min(1.0, share))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _names(longest: pd.DataFrame, table: str) -> list[str]:
    if table != "layers":
        return [name.removeprefix("void ") for name in longest[_NAMES[table]].astype(str)]
    counted = zip(longest["name"], longest["depth"], longest["count"], strict=True)
    return ["  " * depth + name + (f" ×{count}" if count > 1 else "") for name, depth, count in counted]


def _title(analysis: Analysis, table: str, rows: int) -> str:
    modelled = ", modelled" if analysis.source.kind == "modelled" else ""
    more = f" (the {_ROWS} longest of {rows:,})" if rows > _ROWS else ""
    return f"{table.replace('_', ' ').capitalize()}{modelled}{more}"


def _counters(analysis: Analysis) -> Table:
    """Return measured over counted FLOPs and bytes: the median kernel, and the range of 80 % of the kernels."""
    view = _headed("Measured by Nsight Compute over counted", "family")
    for column in ("kernels", "share", "FLOPs", "ratio", "80 % in", "bytes", "ratio", "80 % in"):
        view.add_column(column, justify="right", no_wrap=True)
    for row in rows_of(analysis.counters_comparison):
        view.add_row(
            row.family,
            f"{row.kernels:,}",
            percent(row.share),
            quantity(row.measured_flops, "FLOP"),
            *_ratio(row.flops_ratio, row.flops_ratio_p10, row.flops_ratio_p90),
            quantity(row.measured_bytes, "B"),
            *_ratio(row.bytes_ratio, row.bytes_ratio_p10, row.bytes_ratio_p90),
        )
    return view


def _ratio(median: float, low: float, high: float) -> tuple[str, str]:
    if not math.isfinite(median):
        return "", ""
    return significant(median), f"{significant(low)} to {significant(high)}"


def _problems(analysis: Analysis) -> Table:
    view = _headed("Problems", "severity")
    view.add_column("what was seen", ratio=1)
    view.add_column("what to do", ratio=1)
    for row in rows_of(analysis.problems):
        view.add_row(row.severity, Text(printable(row.message)), Text(printable(row.advice)))
    return view


def _headed(title: str, name: str) -> Table:
    view = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    view.add_column(name, no_wrap=True)
    return view
