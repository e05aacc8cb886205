"""The memory of a run as text, as JSON and as a page: a stacked area by kind, and the allocations at the peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from tracekit.analyzers.memory import KINDS, MemoryOfRun
from tracekit.analyzers.results import Remedy
from tracekit.reports.answer import interval
from tracekit.reports.words import (
    asset,
    duration,
    environment,
    json_text,
    percent,
    printable,
    quantity,
    shortened,
    speedup,
)

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1100, 320, 66, 14, 26
_COLOURS = 9


@dataclass(frozen=True)
class MemoryPage:
    """Contents of the page. `over_time` has `time_ns` and a column of bytes for each kind."""

    title: str
    note: str
    over_time: pd.DataFrame
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Rows of the table of allocations at the peak."""
    capacity_bytes: int = 0
    remedies: Sequence[Sequence[str]] = ()
    """Title, predicted peak, requirements, speed-up."""


def page_html(page: MemoryPage) -> str:
    """Return one self-contained page."""
    kinds = [name for name in page.over_time.columns if name != "time_ns"]
    areas = {name: f"area-{number % _COLOURS}" for number, name in enumerate(kinds)}
    classes = {name: area for name, area in areas.items() if page.over_time[name].any()} or areas
    values: dict[str, Any] = {
        "title": page.title,
        "note": page.note,
        "legend": [{"name": printable(name), "area": area} for name, area in reversed(classes.items())],
        "svg": _drawn(page, classes),
        "head": page.head,
        "rows": page.rows,
        "remedies": page.remedies,
        "style": asset("tokens.css") + asset("bench.css") + asset("memory.css"),
    }
    return environment().get_template("memory.html.j2").render(**values)


def _drawn(page: MemoryPage, classes: dict[str, str]) -> str:
    table = page.over_time
    times = table["time_ns"].to_numpy(dtype=float)
    stacked = table[list(classes)].to_numpy(dtype=float).cumsum(axis=1)
    most, last = max(1.0, float(stacked.max())), max(1.0, float(times.max()))
    shows_capacity = 0 < page.capacity_bytes <= 2.5 * most
    scale = (_HEIGHT - _TOP - _BOTTOM) / (max(most, page.capacity_bytes) if shows_capacity else most)
    x = _LEFT + (_WIDTH - _LEFT - 8) * times / last
    parts, below = list[str](), stacked[:, 0] * 0
    for column, (name, area) in enumerate(classes.items()):
        above = stacked[:, column]
        top = _steps(x, above, scale)
        bottom = list(reversed(_steps(x, below, scale)))
        outline = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*top, *bottom])
        parts.append(f'<polygon class="{area}" points="{outline}"><title>{escape(printable(name))}</title></polygon>')
        below = above
    total = stacked[:, -1]
    peak = int(total.argmax())
    parts.append(_mark(float(x[peak]), _HEIGHT - _BOTTOM - float(total[peak]) * scale, quantity(int(total[peak]), "B")))
    if shows_capacity:
        y = _HEIGHT - _BOTTOM - page.capacity_bytes * scale
        label = f"memory of the GPU, {quantity(page.capacity_bytes, 'B')}"
        parts.append(
            f'<path class="one" d="M{_LEFT} {y:.1f}H{_WIDTH}"/><text x="{_LEFT + 6}" y="{y + 10:.1f}">{label}</text>'
        )
    parts.append(_axes(most, last, scale))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Memory over time">{"".join(parts)}</svg>'


def _steps(x: Any, values: Any, scale: float) -> list[tuple[float, float]]:
    """Return the points of a step curve: memory is constant until the next event."""
    base, points = _HEIGHT - _BOTTOM, list[tuple[float, float]]()
    for row, (at, value) in enumerate(zip(x, values, strict=True)):
        if row:
            points.append((float(at), points[-1][1]))
        points.append((float(at), base - float(value) * scale))
    return points


def _mark(x: float, y: float, text: str) -> str:
    anchor, shift = ("label", -8) if x > _WIDTH / 2 else ("", 8)
    return (
        f'<circle class="peak" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="{anchor} told" x="{x + shift:.1f}" y="{max(y - 3, 10):.1f}">peak {escape(text)}</text>'
    )


def _axes(most: float, last: float, scale: float) -> str:
    base = _HEIGHT - _BOTTOM
    levels = [(most * part, base - most * part * scale) for part in (0.0, 0.5, 1.0)]
    marks = [f'<text class="label" x="{_LEFT - 6}" y="{y:.1f}">{quantity(int(size), "B")}</text>' for size, y in levels]
    times = [(last * part, min(_LEFT + (_WIDTH - _LEFT - 8) * part, _WIDTH - 30)) for part in (0.0, 0.5, 1.0)]
    marks += [f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 10}">{duration(at / 1e3)}</text>' for at, x in times]
    return f'<path class="axis" d="M{_LEFT} {_TOP}V{base}H{_WIDTH - 8}"/>{"".join(marks)}'


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
