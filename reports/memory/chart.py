"""Draws device memory over time: a stacked area of kinds, with its peak."""

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from tracekit.reports.words import duration, printable, quantity

WIDE, NARROW = 1100, 380
"""Widths of the drawing. On a narrow screen, a wide one would be too small to read."""
_HEIGHT, _LEFT, _TOP, _BOTTOM = 320, 66, 14, 26


def chart(table: pd.DataFrame, classes: Mapping[str, str], capacity_bytes: int, width: int) -> str:
    """Return a stacked area as SVG. `table` has `time_ns` and a column of bytes for each kind, `classes` the kinds' CSS
    classes."""
    times = table["time_ns"].to_numpy(dtype=float)
    stacked = table[list(classes)].to_numpy(dtype=float).cumsum(axis=1)
    most, last = max(1.0, float(stacked.max())), max(1.0, float(times.max()))
    shows_capacity = 0 < capacity_bytes <= 2.5 * most
    scale = (_HEIGHT - _TOP - _BOTTOM) / (max(most, capacity_bytes) if shows_capacity else most)
    x = _LEFT + (width - _LEFT - 8) * times / last
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
    parts.append(
        _mark(float(x[peak]), _HEIGHT - _BOTTOM - float(total[peak]) * scale, width, quantity(int(total[peak]), "B"))
    )
    if shows_capacity:
        y = _HEIGHT - _BOTTOM - capacity_bytes * scale
        label = f"memory of the GPU, {quantity(capacity_bytes, 'B')}"
        parts.append(
            f'<path class="one" d="M{_LEFT} {y:.1f}H{width}"/><text x="{_LEFT + 6}" y="{y + 10:.1f}">{label}</text>'
        )
    parts.append(_axes(most, last, scale, width))
    return f'<svg viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="Memory over time">{"".join(parts)}</svg>'


def _steps(x: Any, values: Any, scale: float) -> list[tuple[float, float]]:
    """Return the points of a step curve: memory is constant until the next event."""
    base, points = _HEIGHT - _BOTTOM, list[tuple[float, float]]()
    for row, (at, value) in enumerate(zip(x, values, strict=True)):
        if row:
            points.append((float(at), points[-1][1]))
        points.append((float(at), base - float(value) * scale))
    return points


def _mark(x: float, y: float, width: int, text: str) -> str:
    anchor, shift = ("label", -8) if x > width / 2 else ("", 8)
    return (
        f'<circle class="peak" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="{anchor} told" x="{x + shift:.1f}" y="{max(y - 3, 10):.1f}">peak {escape(text)}</text>'
    )


def _axes(most: float, last: float, scale: float, width: int) -> str:
    base = _HEIGHT - _BOTTOM
    levels = [(most * part, base - most * part * scale) for part in (0.0, 0.5, 1.0)]
    marks = [f'<text class="label" x="{_LEFT - 6}" y="{y:.1f}">{quantity(int(size), "B")}</text>' for size, y in levels]
    times = [(last * part, min(_LEFT + (width - _LEFT - 8) * part, width - 30)) for part in (0.0, 0.5, 1.0)]
    marks += [f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 10}">{duration(at / 1e3)}</text>' for at, x in times]
    return f'<path class="axis" d="M{_LEFT} {_TOP}V{base}H{width - 8}"/>{"".join(marks)}'
