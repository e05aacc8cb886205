"""The four panels of a bench as SVG: speed-up, peak memory, GPU utilisation, and accuracy against speed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from tracekit.reports.words import percent, printable, quantity, significant, times

Row = Mapping[str, Any]

_WIDTH, _LABEL, _STEP, _BAR = 460, 168, 26, 12
_PLOT = _WIDTH - _LABEL - 74
_HEIGHT = 230
_LETTER, _LINE = 6.2, 13.0
"""Width of a letter of a label, and height of its line."""


@dataclass(frozen=True)
class Panel:
    title: str
    svg: str


def panels(group: Sequence[Row]) -> list[Panel]:
    """Return the panels for which the rows hold values."""
    done = [row for row in group if row["latency_us"]]
    made = (
        Panel("Speed-up over the first; line: predicted", _speedups(done)),
        Panel("Peak memory", _bars(done, "peak_memory_bytes", lambda value: quantity(value, "B"))),
        Panel("GPU utilisation", _bars(done, "gpu_utilization", percent, largest=1.0)),
        Panel("Accuracy against speed: change of perplexity, else of outputs", _scatter(done)),
    )
    return [panel for panel in made if panel.svg]


def _speedups(rows: Sequence[Row]) -> str:
    drawn = [row for row in rows if row["speedup"]]
    if not drawn:
        return ""
    scale = _PLOT / max(max(row["speedup"], row["predicted_high"] or 0.0) for row in drawn)
    gains = [(row["config"], row["speedup"]) for row in drawn]
    marks = [_bar(index, name, gain * scale, times(gain, gain)) for index, (name, gain) in enumerate(gains)]
    ranges = [_range(index, row, scale) for index, row in enumerate(drawn) if row["predicted"] is not None]
    one = f'<line class="one" x1="{_LABEL + scale:.1f}" x2="{_LABEL + scale:.1f}" y1="0" y2="{_STEP * len(drawn)}"/>'
    return _svg("".join((*marks, one, *ranges)), _STEP * len(drawn))


def _range(index: int, row: Row, scale: float) -> str:
    y = index * _STEP + _STEP / 2
    low, middle, high = (_LABEL + row[name] * scale for name in ("predicted_low", "predicted", "predicted_high"))
    return (
        f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        f'<circle class="range" cx="{middle:.1f}" cy="{y}" r="3.5"/>'
    )


def _bars(rows: Sequence[Row], name: str, write: Any, largest: float | None = None) -> str:
    drawn = [row for row in rows if row[name]]
    if not drawn:
        return ""
    scale = _PLOT / (largest or max(row[name] for row in drawn))
    marks = [_bar(index, row["config"], row[name] * scale, write(row[name])) for index, row in enumerate(drawn)]
    return _svg("".join(marks), _STEP * len(drawn))


def _bar(index: int, label: str, length: float, value: str) -> str:
    y = index * _STEP
    middle = y + _STEP / 2
    return (
        f'<text x="{_LABEL - 8}" y="{middle}" class="label">{escape(printable(_short(label)))}</text>'
        f'<rect x="{_LABEL}" y="{middle - _BAR / 2}" width="{max(length, 1):.1f}" height="{_BAR}" rx="2"/>'
        f'<text x="{_WIDTH}" y="{middle}" class="value">{escape(value)}</text>'
    )


def _short(label: str) -> str:
    return label if len(label) <= 25 else f"{label[:12]}…{label[-12:]}"


class _Box(NamedTuple):
    """Place of a label; `y` is its middle."""

    x: float
    y: float
    width: float

    def meets(self, other: "_Box") -> bool:
        apart = self.x > other.x + other.width or other.x > self.x + self.width
        return not apart and abs(self.y - other.y) < _LINE


def _free(x: float, y: float, width: float, taken: Sequence[_Box]) -> _Box:
    """Return a place above or else below a point that is free of other labels and points."""
    places = [_Box(x, y + shift, width) for shift in (-9, 9, 0, -9 - _LINE, 9 + _LINE, 9 + 2 * _LINE)]
    free = (each for each in places if each.y > _LINE / 2 and not any(each.meets(other) for other in taken))
    return next(free, places[0])


def _scatter(rows: Sequence[Row]) -> str:
    """Return a scatter plot of the change of perplexity against speed; without perplexity, of the outputs'
    difference."""
    points = [(row["config"], row["speedup"], loss) for row in rows if (loss := _loss(row, rows[0])) is not None]
    if len(points) < 2:
        return ""
    left, top, right, bottom = 54, 16, _WIDTH - 70, _HEIGHT - 34
    fastest, worst = max(point[1] for point in points), max(max(point[2] for point in points), 1e-4)

    def place(speed: float, loss: float) -> tuple[float, float]:
        return left + (right - left) * speed / fastest, bottom - (bottom - top) * math.sqrt(loss / worst)

    marks, places = [], [place(speed, loss) for _, speed, loss in points]
    taken = [_Box(x - 4, y, 8) for x, y in places]
    for (name, _, _), (x, y) in zip(points, places, strict=True):
        beyond, label = x > (left + right) / 2, printable(_short(name))
        box = _free(x + (-7 - _LETTER * len(label) if beyond else 7), y, _LETTER * len(label), taken)
        taken.append(box)
        side = f'class="value" x="{x - 7:.1f}"' if beyond else f'x="{x + 7:.1f}"'
        text = f'<text {side} y="{box.y:.1f}">{escape(label)}</text>'
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>{text}')
    axes = (
        f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
        f'<text x="{right}" y="{bottom + 24}" class="label">{significant(fastest)}× as fast</text>'
        f'<text x="{left}" y="{bottom + 24}">0</text>'
        f'<text x="{left - 6}" y="{top}" class="label">{percent(worst)}</text>'
        f'<text x="{left - 6}" y="{bottom}" class="label">0</text>'
    )
    return _svg(axes + "".join(marks), _HEIGHT)


def _loss(row: Row, first: Row) -> float | None:
    if not row["speedup"]:
        return None
    if row["perplexity"] and first["perplexity"]:
        return float(abs(row["perplexity"] / first["perplexity"] - 1))
    if row is first:
        return 0.0
    return None if row["relative_difference"] is None else float(row["relative_difference"])


def _svg(body: str, height: int) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-hidden="true">{body}</svg>'
