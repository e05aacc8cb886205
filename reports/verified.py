"""What was measured of optimizations: as plain Python values for JSON, and as text for a terminal."""

import io
import shutil
import textwrap
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analyzers.capture_info import Latency
from analyzers.verified import Difference, Verification, Verified
from reports.advice import interval
from reports.numbers import ABSENT, duration, percent, quantity, significant, speedup, times
from reports.public import number

_COLUMNS = ("predicted", "measured", "step before", "step after", "throughput", "peak memory", "difference")


def result(found: Verified) -> dict[str, Any]:
    """One optimization, as analysis.schema.json describes it."""
    return {
        "id": found.id,
        "title": found.title,
        "predicted": interval(found.predicted) if found.predicted else None,
        "measured": interval(found.measured) if found.measured else None,
        "inside": found.inside,
        "error": found.error or None,
        "work_factor": found.work_factor,
        "before_us": number(found.before.median_us, 3) if found.before else None,
        "after_us": number(found.after.median_us, 3) if found.after else None,
        "predicted_peak_bytes": found.predicted_peak_bytes,
        "peak_memory_bytes": found.peak_memory_bytes or None,
        "difference": asdict(found.difference) if found.difference else None,
        "caveats": list(found.caveats),
    }


def sentence(found: Verified) -> str:
    """predicted 7.1–9.4×, measured 8.2×"""
    if found.measured is None:
        return f"not measured: {found.error}"
    predicted = f"predicted {speedup(found.predicted)}, " if found.predicted else ""
    return f"{predicted}measured {times(found.measured.expected, found.measured.high)}"


def to_text(verification: Verification, *, width: int | None = None) -> str:
    """A table with a row an optimization, then what could not be done, and caveats."""
    width = width or shutil.get_terminal_size((120, 40)).columns
    sink = io.StringIO()
    console = Console(file=sink, width=width, highlight=False)
    console.print(Text(_heading(verification)))
    console.print(_table(verification))
    for line in _remarks(verification):
        console.print(Text(textwrap.fill(line, width, subsequent_indent="  ")))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def _heading(verification: Verification) -> str:
    run = verification.settings
    what = f"{run['name'] or run['model']}, {run['workload']}, batch {run['batch_size']}, {run['dtype']}"
    return f"{what}, on {verification.device_name}; seed {verification.seed}"


def _table(verification: Verification) -> Table:
    view = Table(box=SIMPLE_HEAD, pad_edge=False)
    view.add_column("optimization", overflow="fold")
    for column in _COLUMNS:
        view.add_column(column, justify="right")
    for found in verification.results:
        view.add_row(found.id, *_cells(found, verification))
    return view


def _cells(found: Verified, verification: Verification) -> tuple[str, ...]:
    predicted = speedup(found.predicted) if found.predicted else ABSENT
    if found.measured is None or found.before is None or found.after is None:
        return (predicted, *[ABSENT] * (len(_COLUMNS) - 1))
    gain = found.measured
    return (
        predicted,
        f"{times(gain.expected, gain.high)} ({speedup(gain)})",
        _spread(found.before),
        _spread(found.after),
        _throughput(found.after, verification, found.work_factor),
        _memory(found, verification),
        _difference(found.difference),
    )


def _spread(latency: Latency) -> str:
    apart = (latency.p90_us - latency.p10_us) / 2 / latency.median_us
    return f"{duration(latency.median_us)} ±{percent(apart)}"


def _throughput(latency: Latency, verification: Verification, work: float) -> str:
    return quantity(verification.items * work / latency.median_us * 1e6, f" {verification.unit}/s")


def _memory(found: Verified, verification: Verification) -> str:
    if not found.peak_memory_bytes:
        return ABSENT
    return f"{quantity(verification.peak_memory_bytes, 'B')} → {quantity(found.peak_memory_bytes, 'B')}"


def _difference(found: Difference | None) -> str:
    if found is None:
        return ABSENT
    same = "" if found.agreement is None else f", {percent(found.agreement)} same"
    return f"{significant(100 * found.relative)} %{same}" if found.relative >= 1e-6 else f"none{same}"


def _remarks(verification: Verification) -> list[str]:
    refused = [f"{found.id}: not measured. {found.error}" for found in verification.results if found.error]
    said: dict[str, list[str]] = {}
    for found in verification.results:
        for line in found.caveats:
            said.setdefault(line, []).append(found.id)
    caveats = [f"{', '.join(ids)}: {line}" for line, ids in said.items()]
    return [*refused, *caveats, *verification.caveats]
