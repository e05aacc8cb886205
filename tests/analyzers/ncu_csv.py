"""Small reports of Nsight Compute, written by hand, and real ones."""

import csv
import io
from pathlib import Path

COUNTERS = Path(__file__).parents[2] / "examples" / "counters"
HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
HEAD += ["Device", "CC"]
PROF = "==PROF== Connected to process 7 (/usr/bin/python3)\n"


def raw(metrics, launches, names=None, units=True):
    """`metrics`: {name: unit}; `launches`: a list of values by metric."""
    rows = [[*HEAD, *metrics]]
    if units:
        rows.append([""] * len(HEAD) + list(metrics.values()))
    for i, values in enumerate(launches):
        name = (names or ["kernel"])[i % len(names or [1])]
        rows.append([*_identity(i, name), *(values.get(metric, "") for metric in metrics)])
    return PROF + text(rows)


def details(launches, name="kernel"):
    """`launches`: lists of (section, metric, unit, value); rules, whose rows are longer, stand in between."""
    rows = [[*HEAD, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Description"]]
    for i, cells in enumerate(launches):
        for cell in cells:
            rows.append([*_identity(i, name), *cell])
        rows.append([*_identity(i, name), "SpeedOfLight", "", "", "", "Bottleneck", 'Memory, says "it"'])
    return PROF + text(rows)


def _identity(number, name):
    return [str(number), "7", "python3", "127.0.0.1", name, "1", "7", "(128, 1, 1)", "(8, 3, 2)", "0", "9.0"]


def text(rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def table_of(data):
    """Header, units and rows of a raw page, with nothing but the csv module."""
    lines = data.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    header, units, *rows = csv.reader(lines[start:])
    return header, units, [dict(zip(header, row, strict=True)) for row in rows]


def number(value):
    return float(value.replace(",", ""))
