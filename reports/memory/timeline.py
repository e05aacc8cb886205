"""The memory of a run as text, as JSON and as a page."""

from typing import Any

from tracekit.analyzers.memory import KINDS, MemoryOfRun
from tracekit.analyzers.results import Remedy
from tracekit.reports.answer import interval
from tracekit.reports.memory.page import MemoryPage
from tracekit.reports.memory.page import to_html as page_html
from tracekit.reports.words import json_text, percent, printable, quantity, shortened, speedup

_ROWS, _SHOWN = 12, 40
HEAD = ("kind", "layer", "op", "bytes", "of the peak", "blocks")


def memory_text(run: MemoryOfRun) -> str:
    """Return the peak by kind, the layers that allocate it, and the remedies."""
    line = run.timeline
    at, of = (f" in {line.phase}" if line.phase else ""), _capacity(run)
    lines = [f"{'MODELLED: ' * run.modelled}{_size(line.peak_bytes)} at the peak{at}{of}"]
    lines += [
        f"  {_size(size):>9}  {percent(size / max(1, line.peak_bytes)):>6}  {kind}" for kind, size in _by_kind(run)
    ]
    lines += ["", "Largest allocations at the peak"]
    for kind, layer, op, size, share, _ in _rows(run)[:_ROWS]:
        lines.append(f"  {size:>9}  {share:>6}  {kind}: {shortened(layer, 44)} {shortened(op, 40)}".rstrip())
    if run.remedies:
        lines += ["", "Optimizations that lower it (predicted peak, reduction, speed-up)"]
        lines += [f"  {peak:>9}  {less:>9}  {gain:>12}  {title}" for title, peak, less, gain in _remedies(run)]
    return "\n".join(lines) + "\n"


def memory_json(run: MemoryOfRun) -> str:
    """Return the same values for JSON. Sizes are in bytes, times in nanoseconds."""
    line = run.timeline
    fields = {
        "schema_version": "1.0",
        "modelled": run.modelled,
        "peak_bytes": line.peak_bytes,
        "peak_ns": line.peak_ns,
        "phase": line.phase or None,
        "capacity_bytes": run.capacity_bytes or None,
        "by_kind": dict(_by_kind(run)),
        "at_peak": line.at_peak.to_dict("records"),
        "over_time": line.over_time.to_dict("list"),
        "remedies": [_plain(each) for each in run.remedies],
    }
    return json_text(fields)


def to_html(run: MemoryOfRun) -> str:
    """Return one self-contained page."""
    line = run.timeline
    note = f"{_size(line.peak_bytes)} at the peak{f' in {line.phase}' if line.phase else ''}{_capacity(run)}. "
    note += "MODELLED: nothing was measured. " if run.modelled else ""
    note += "The kind of a block is inferred from the times of its allocation and free."
    return page_html(
        MemoryPage(
            title=printable(run.name),
            note=note,
            over_time=line.over_time,
            head=HEAD,
            rows=_rows(run)[:_SHOWN],
            capacity_bytes=run.capacity_bytes,
            remedies=_remedies(run),
        )
    )


def _capacity(run: MemoryOfRun) -> str:
    return f", of {_size(run.capacity_bytes)}" if run.capacity_bytes else ""


def _by_kind(run: MemoryOfRun) -> list[tuple[str, int]]:
    sums = run.timeline.at_peak.groupby("kind")["bytes"].sum()
    return [(kind, int(sums[kind])) for kind in KINDS if sums.get(kind, 0)]


def _rows(run: MemoryOfRun) -> list[tuple[str, ...]]:
    table = run.timeline.at_peak
    return [
        (kind, printable(layer), printable(op), _size(size), percent(share), f"{blocks:,}" if blocks else "")
        for kind, layer, op, size, blocks, share in table.itertuples(index=False)
    ]


def _remedies(run: MemoryOfRun) -> list[tuple[str, str, str, str]]:
    before = run.held.peak if run.held else run.timeline.peak_bytes
    return [
        (each.title, _size(each.peak_bytes), _size(before - each.peak_bytes), speedup(each.speedup))
        for each in run.remedies
    ]


def _plain(remedy: Remedy) -> dict[str, Any]:
    return {
        "apply": remedy.name,
        "title": remedy.title,
        "peak_bytes": remedy.peak_bytes,
        "speedup": interval(remedy.speedup),
    }


def _size(size: int) -> str:
    return quantity(size, "B")
