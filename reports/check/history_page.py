"""The history of a baseline: text, and one page with a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tracekit.analyzers.check import HistoryPoint, change_points
from tracekit.analyzers.core import UnknownNameError
from tracekit.reports.check.sentences import counted
from tracekit.reports.words import duration, page, printable

WIDTH, HEIGHT, _MARGIN = 900, 260, 24
_LATENCY = "latency"
_ROWS = 500


@dataclass(frozen=True)
class Series:
    """The values of one quantity over the points of a history that state it."""

    what: str
    points: tuple[HistoryPoint, ...]
    values: tuple[float, ...]
    ends: tuple[tuple[float, float], ...]
    changes: tuple[int, ...]
    """Indices at which a new level begins."""

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return duration(value) if self.what == _LATENCY else counted(self.what, value)

    def levels(self) -> list[tuple[int, int, float]]:
        """Return (first index, index after the last, median) of each level."""
        starts = [0, *self.changes, len(self.values)]
        return [(first, stop, sorted(self.values[first:stop])[(stop - first) // 2]) for first, stop in pairwise(starts)]


def series(points: Sequence[HistoryPoint], what: str = _LATENCY) -> Series:
    """Return the latency, or a counter, of a history. Raises UnknownNameError for a counter that is in none of its
    points."""
    if what == _LATENCY:
        kept = [point for point in points if point.latency_us > 0]
        values = [point.latency_us for point in kept]
        ends = [(point.low_us, point.high_us) for point in kept]
        return Series(what, tuple(kept), tuple(values), tuple(ends), tuple(change_points(values)))
    kept = [point for point in points if what in point.counters]
    if points and not kept:
        known = dict.fromkeys(name for point in points for name in point.counters)
        raise UnknownNameError(
            f"The history has no counter {what!r}.",
            f"Its counters are {printable(', '.join(known)) or 'none'}.",
            "Name one of them with --counter, or leave it out for the latency.",
        )
    values = [point.counters[what] for point in kept]
    changes = tuple(at for at in range(1, len(values)) if values[at] != values[at - 1])
    return Series(what, tuple(kept), tuple(values), tuple((value, value) for value in values), changes)


def to_text(name: str, drawn: Series) -> str:
    """Return the changes of level, and the last points."""
    lines = [f"{printable(name)}: {drawn.what}, {len(drawn.values)} points"]
    levels = drawn.levels() if drawn.values else []
    for (_, _, before), (first, _, after) in pairwise(levels):
        point = drawn.points[first]
        ratio = f" ({after / before:.3f}×)" if before else ""
        at = f"{point.when[:16].replace('T', ' ')}  {point.commit or '-'}"
        lines.append(printable(f"  changed at {at}: {drawn.text(before)} → {drawn.text(after)}{ratio}"))
    for point, value in list(zip(drawn.points, drawn.values, strict=True))[-20:]:
        when = point.when[:16].replace("T", " ")
        lines.append(printable(f"  {when}  {point.commit or '-':13}  {drawn.text(value):>10}  {point.what}"))
    return "\n".join(lines) + "\n"


def render(name: str, drawn: Series, mark: str = "") -> str:
    """Return the HTML page. Names are escaped."""
    levels = drawn.levels() if drawn.values else []
    return page(
        "history",
        printable(name),
        mark=mark,
        styles=("history",),
        what=drawn.what,
        changes=[_change(drawn, before, after) for before, after in pairwise(levels)],
        plot=_plot(drawn, levels),
        rows=[_row(drawn, at) for at in range(len(drawn.values))][::-1][:_ROWS],
    )


def _change(drawn: Series, before: tuple[int, int, float], after: tuple[int, int, float]) -> dict[str, Any]:
    point = drawn.points[after[0]]
    return {
        "when": point.when[:16].replace("T", " "),
        "commit": printable(point.commit),
        "before": drawn.text(before[2]),
        "after": drawn.text(after[2]),
        "ratio": f"{after[2] / before[2]:.3f}×" if before[2] else "",
        "worse": after[2] > before[2],
    }


def _row(drawn: Series, at: int) -> dict[str, Any]:
    point, (low, high) = drawn.points[at], drawn.ends[at]
    return {
        "when": point.when[:16].replace("T", " "),
        "commit": printable(point.commit),
        "value": drawn.text(drawn.values[at]),
        "ends": f"{drawn.text(low)} to {drawn.text(high)}" if low != high else "",
        "what": printable(point.what),
        "new": at in drawn.changes,
    }


def _plot(drawn: Series, levels: list[tuple[int, int, float]]) -> dict[str, Any]:
    """Return the coordinates of the points, their intervals, the levels and the labels of the axis."""
    if not drawn.values:
        return {"points": [], "levels": [], "ticks": []}
    lowest = min(low for low, _ in drawn.ends)
    highest = max(high for _, high in drawn.ends)
    room = (highest - lowest) * 0.08 or max(abs(highest), 1.0) * 0.05
    bottom, top = lowest - room, highest + room

    def across(at: float) -> float:
        return round(_MARGIN + (WIDTH - 2 * _MARGIN) * (at + 0.5) / len(drawn.values), 1)

    def up(value: float) -> float:
        return round(HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * (value - bottom) / (top - bottom), 1)

    points = [
        {
            "x": across(at),
            "y": up(value),
            "low": up(low),
            "high": up(high),
            "title": _title(drawn, at),
            "kind": drawn.points[at].what if drawn.points[at].what in ("baseline", "regressed") else "other",
        }
        for at, (value, (low, high)) in enumerate(zip(drawn.values, drawn.ends, strict=True))
    ]
    lines = [{"from": across(first - 0.5), "to": across(stop - 0.5), "y": up(value)} for first, stop, value in levels]
    ticks = [{"y": up(value), "text": drawn.text(value)} for value in (lowest, highest)]
    return {"points": points, "levels": lines, "ticks": ticks}


def _title(drawn: Series, at: int) -> str:
    point = drawn.points[at]
    return printable(
        f"{point.when[:16].replace('T', ' ')} {point.commit}: {drawn.text(drawn.values[at])}, {point.what}"
    )
