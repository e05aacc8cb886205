"""What was measured of optimizations: as plain Python values for JSON, and as text for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.verification import Difference, Verification, Verified
from tracekit.reports.advice import interval
from tracekit.reports.console import paragraph, printed
from tracekit.reports.numbers import ABSENT, duration, measured, percent, quantity, significant, speedup
from tracekit.reports.public import number

_NAME = 22
_LEGEND = (
    "In brackets: 95 % interval of the median. off by: root mean square of the outputs' difference over theirs; "
    "same: positions with the same most likely token."
)


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
    return f"{predicted}measured {measured(found.measured)}"


def to_text(verification: Verification, *, width: int | None = None) -> str:
    """A table with a row an optimization that was measured, then what could not be, and caveats."""
    return printed(lambda columns: _text(verification, columns), width=width, colour=False)


def _text(verification: Verification, width: int) -> RenderableType:
    measured_ones = [each for each in verification.results if each.measured]
    tables = [_table(measured_ones, verification)] if measured_ones else []
    lines = [*((_LEGEND, "") if measured_ones else ()), *_remarks(verification)]
    return Group(Text(_heading(verification)), *tables, *(paragraph(line, width) for line in lines))


def _heading(verification: Verification) -> str:
    run = verification.settings
    what = f"{run['name'] or run['model']}, {run['workload']}, batch {run['batch_size']}, {run['dtype']}"
    return f"{what}, on {verification.device_name}; seed {verification.seed}"


def _table(results: Sequence[Verified], verification: Verification) -> Table:
    view = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    view.add_column("optimization", overflow="fold")
    for column in ("predicted", "measured", "step", f"{verification.unit}/s", "peak memory", "off by", "same"):
        view.add_column(column, justify="right", no_wrap=True)
    for found in results:
        view.add_row(_in_lines(found.id), *_cells(found, verification))
    return view


def _in_lines(name: str) -> str:
    """A long combination, broken where its parts meet."""
    if len(name) <= _NAME:
        return name
    parts = name.split("+")
    fits = max((count for count in range(1, len(parts)) if len("+".join(parts[:count])) < _NAME), default=1)
    return "+".join(parts[:fits]) + "+\n " + _in_lines("+".join(parts[fits:])) if len(parts) > 1 else name


def _cells(found: Verified, verification: Verification) -> tuple[str, ...]:
    assert found.measured and found.before and found.after
    gain, work = found.measured, verification.items * found.work_factor * 1e6
    return (
        speedup(found.predicted) if found.predicted else ABSENT,
        f"{measured(gain)} ({speedup(gain).removesuffix('×')})",
        from_to(found.before.median_us, found.after.median_us, duration),
        significant(work / found.after.median_us),
        _memory(found, verification),
        *_difference(found.difference),
    )


def from_to(before: float, after: float, shown: Callable[[float], str]) -> str:
    """3.82 → 1.70 ms: the unit once where it is the same."""
    (first, unit), second = shown(before).rsplit(" ", 1), shown(after)
    return f"{first} → {second}" if second.endswith(f" {unit}") else f"{first} {unit} → {second}"


def _memory(found: Verified, verification: Verification) -> str:
    if not found.peak_memory_bytes:
        return ABSENT
    return from_to(verification.peak_memory_bytes, found.peak_memory_bytes, lambda size: quantity(size, "B"))


def _difference(found: Difference | None) -> tuple[str, str]:
    if found is None:
        return (ABSENT, ABSENT)
    apart = f"{significant(100 * found.relative)} %" if found.relative >= 1e-6 else "0"
    return apart, ABSENT if found.agreement is None else percent(found.agreement)


def _remarks(verification: Verification) -> list[str]:
    refused = [(_named(found), f"not measured. {why_not(found)}") for found in verification.results if found.error]
    caveats = [(found.id, line) for found in verification.results if not found.error for line in found.caveats]
    return [*_together(refused), *_together(caveats), *verification.caveats]


def why_not(found: Verified) -> str:
    """Why it was not measured, where its name is said already."""
    return found.error.removeprefix(f"{found.title} cannot be applied here. ")


def _named(found: Verified) -> str:
    return f"{found.id} (predicted {speedup(found.predicted)})" if found.predicted else found.id


def _together(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """Each thing said once, of all names."""
    said: dict[str, list[str]] = {}
    for name, line in remarks:
        said.setdefault(line, []).append(name)
    return [f"{', '.join(names)}: {line}" for line, names in said.items()]
