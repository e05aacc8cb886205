"""A sweep as a document: its crossovers, small multiples of each measure, and the table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from tracekit.analyzers.predict import MEASURED, NONE
from tracekit.reports.document import Document, Drawn, Listing, Section, Text
from tracekit.reports.measure.sweep import basis, points, sentences
from tracekit.reports.words import duration, quantity, significant, times

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 300, 170, 52, 8, 10, 22
COLOURS = 8
"""Classes of lines in sweep.css, line-0 and so on; further lines use them again."""
_MEASURES = (
    ("latency_ns", "Step", True),
    ("rate", "Per second", True),
    ("speedup", "Speed-up over none", False),
    ("memory_bytes", "Memory", False),
)


@dataclass(frozen=True)
class _Scale:
    """Maps a value to a height in a panel; logarithmic if the values span orders of magnitude."""

    low: float
    high: float
    logarithmic: bool

    def height(self, value: float) -> float:
        low, high, at = (math.log(each) if self.logarithmic else each for each in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def sweep_document(sweep: pd.DataFrame, title: str) -> Document:
    """Return the points, the crossovers, and a panel for each measure and value of the other axis."""
    applies = list(dict.fromkeys(sweep["apply"]))
    lines = {name: f"line-{number % COLOURS}" for number, name in enumerate(applies)}
    x, other = ("seq_len", "batch_size") if sweep["batch_size"].nunique() == 1 else ("batch_size", "seq_len")
    along = "batch size" if x == "batch_size" else "tokens"
    legend = {"lines": lines, "measured": (sweep["source"] == MEASURED).any()}
    blocks = [
        Section("Points", [points(sweep)]),
        Listing(sentences(sweep)),
        Text(basis(sweep), "soft"),
        Drawn("lines", legend),
        *(
            Section(f"{gpu}, by {along}", list(_measures(rows, x, other, lines)))
            for gpu, rows in sweep.groupby("gpu", sort=False)
        ),
    ]
    return Document(f"When it flips: {title}", blocks, "sweep", ("bench", "sweep"))


def _measures(rows: pd.DataFrame, x: str, other: str, lines: dict[str, str]) -> Iterator[Section]:
    """Yield the panels of each measure, one for each value of the other axis. They share a scale."""
    for name, label, logarithmic in _MEASURES:
        scale = _scale(rows[name], logarithmic)
        if scale is None:
            continue
        panels = [
            {"title": _setting(other, int(str(value))), "svg": _panel(part, x, name, scale, lines)}
            for value, part in rows.groupby(other, sort=True)
        ]
        yield Section(label, [Drawn("figures", {"kind": "facets", "figures": panels})])


def _setting(axis: str, value: int) -> str:
    return f"{value:,} tokens" if axis == "seq_len" else f"batch {value:,}"


def _scale(values: "pd.Series[float]", logarithmic: bool) -> _Scale | None:
    known = values[values > 0].dropna()
    if known.empty:
        return None
    low, high = float(known.min()), float(known.max())
    return _Scale(low * 0.8, high * 1.25, True) if logarithmic else _Scale(0.0, high * 1.08, False)


def _panel(rows: pd.DataFrame, x: str, name: str, scale: _Scale, lines: dict[str, str]) -> str:
    places = sorted(rows[x].unique().tolist())
    at = {value: _x_position(index, len(places)) for index, value in enumerate(places)}
    parts = [_axes(at, name, scale)]
    if name == "speedup" and scale.low <= 1 <= scale.high:
        parts.append(_level(scale.height(1.0)))
    for (apply, source), line in rows.groupby(["apply", "source"], sort=False):
        if name == "speedup" and apply == NONE:
            continue
        drawn = line[line[name] > 0].sort_values(x)[[x, name]].values
        style = lines[str(apply)] + (" measured" if source == MEASURED else "")
        parts.append(_line([(at[each[0]], scale.height(each[1])) for each in drawn], style))
        label = f"{apply}, {source}"
        parts += [_dot(at[row[0]], scale.height(row[1]), f"{label}: {_value(name, row[1])}", style) for row in drawn]
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _x_position(index: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((index + 0.5) / count)


def _axes(at: dict[int, float], name: str, scale: _Scale) -> str:
    bottom = _HEIGHT - _BOTTOM
    marks = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>']
    for value in _ticks(scale):
        y = scale.height(value)
        marks.append(f'<text class="label" x="{_LEFT - 6}" y="{y:.1f}">{escape(_value(name, value))}</text>')
        marks.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    marks += [f'<text class="tick" x="{x:.1f}" y="{bottom + 12}">{value:,}</text>' for value, x in at.items()]
    return "".join(marks)


def _ticks(scale: _Scale) -> list[float]:
    if not scale.logarithmic:
        return [scale.high * part / 1.08 for part in (0.0, 0.5, 1.0)]
    low, high = math.log(scale.low / 0.8), math.log(scale.high / 1.25)
    return [math.exp(low + (high - low) * part) for part in ((0.0, 0.5, 1.0) if high > low else (0.0,))]


def _level(y: float) -> str:
    return f'<path class="one" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'


def _line(points: Sequence[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{style}" points="{path}"/>' if len(points) > 1 else ""


def _dot(x: float, y: float, title: str, style: str) -> str:
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(title)}</title></circle>'


def _value(name: str, value: float) -> str:
    if name == "latency_ns":
        return duration(value / 1e3)
    if name == "speedup":
        return times(value, max(value, 2.0)) if value else "0"
    return (
        quantity(value, "B") if name == "memory_bytes" else significant(value) if value < 1e4 else quantity(value, "")
    )
