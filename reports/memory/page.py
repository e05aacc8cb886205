"""Device memory over time as one page: a stacked area by kind, the allocations at the peak, and remedies."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from tracekit.reports.words import asset, duration, environment, printable, quantity

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


def to_html(page: MemoryPage) -> str:
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
