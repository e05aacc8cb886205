"""Reads `--page details`, in which each row is a metric of a section, or a rule.

Section, name and unit together identify a metric: "Memory Throughput" is a percentage in "GPU Speed Of Light
Throughput" and a bandwidth in "Memory Workload Analysis". With `--print-metric-name name`, names are the tool's own.
"""

from collections.abc import Callable

import pandas as pd

from tracekit.analyzers.counters.counted_launches import IDENTITY, Launches
from tracekit.analyzers.counters.csv_lines import Lines
from tracekit.analyzers.counters.decimals import decimal_mark, parse
from tracekit.analyzers.counters.units import scale

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


def launches(lines: Lines, wanted: Callable[[str], bool]) -> Launches:
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
    metrics = _metrics(cells, len(number), wanted)
    return Launches(pd.DataFrame(identity, dtype=object), metrics, unreadable + odd, cut)


def _cell(row: list[str], at: dict[str, int]) -> tuple[str, float, str]:
    """Return the tool's name of the metric, the factor to base units, and the value."""
    section, name, unit, value = (row[at[column]] if column in at else "" for column in _METRIC)
    factor, base = scale(unit)
    known = next((known for known in _SECTIONS if section.startswith(known)), "")
    return (name if "__" in name else _LABELS.get((known, name, base), "")), factor, value


def _metrics(cells: list[tuple[int, str, float, str]], size: int, wanted: Callable[[str], bool]) -> pd.DataFrame:
    mark = decimal_mark(value for _, _, _, value in cells)
    known = [cell for cell in cells if wanted(cell[1])]
    columns = {name: [float("nan")] * size for name in dict.fromkeys(cell[1] for cell in known)}
    for launch, name, factor, value in known:
        columns[name][launch] = parse(value, mark) * factor
    return pd.DataFrame(columns, index=range(size), dtype="float64")
