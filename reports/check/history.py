"""The history of a baseline as a document with a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tracekit.analyzers.check import HistoryPoint, change_points
from tracekit.analyzers.core import UnknownNameError
from tracekit.analyzers.results import say
from tracekit.reports.check.sentences import counted
from tracekit.reports.document import Cell, Document, Drawn, Row, Section, Table, Text
from tracekit.reports.words import duration, printable, sentence

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


def history_document(name: str, drawn: Series) -> Document:
    """Return the plot, the changes of level, and the points, the latest one first."""
    levels = drawn.levels() if drawn.values else []
    changes = [_change(drawn, before, after) for before, after in pairwise(levels)]
    rows = [_row(drawn, at) for at in range(len(drawn.values))][::-1][:_ROWS]
    found = f"{len(changes) or 'no'} change{'s' * (len(changes) != 1)} of level"
    note = sentence(say("history-changes"))
    blocks = [
        Text(f"{printable(name)}: {drawn.what} of a step, {len(rows):,} points, {found}", "headline"),
        Drawn("history", {"what": drawn.what, **_plot(drawn, levels)}),
        *([Section("Changes of level", [Table(_CHANGE, changes)], note)] if changes else []),
        Section("Points", [Table(("when (UTC)", "commit", f">{drawn.what}", ">interval", "what"), rows, first=20)]),
    ]
    return Document(printable(name), blocks, "history", ("history",))


_CHANGE = ("at", "commit", ">before", ">after", ">ratio")


def _change(drawn: Series, before: tuple[int, int, float], after: tuple[int, int, float]) -> Row:
    point = drawn.points[after[0]]
    ratio = Cell(f"{after[2] / before[2]:.3f}×" if before[2] else "", "bad" if after[2] > before[2] else "good")
    return (_when(point), point.commit, drawn.text(before[2]), drawn.text(after[2]), ratio)


def _row(drawn: Series, at: int) -> Row:
    point, (low, high) = drawn.points[at], drawn.ends[at]
    ends = f"{drawn.text(low)} to {drawn.text(high)}" if low != high else ""
    new = ", a new level" if at in drawn.changes else ""
    return (_when(point), point.commit, drawn.text(drawn.values[at]), ends, point.what + new)


def _when(point: HistoryPoint) -> str:
    return point.when[:16].replace("T", " ")


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
    return printable(f"{_when(point)} {point.commit}: {drawn.text(drawn.values[at])}, {point.what}")
