"""Scores predicted intervals by one number that width cannot win: the interval (Winkler) score.

    python -m benchmarks accuracy.interval_score      # the table of docs/diagnosis.md

The score of an interval of a log speed-up is its width, and for a miss 2 / (1 - COVERAGE) times what it misses by
(Gneiting and Raftery, 2007). Less is better.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, replace
from statistics import fmean, median

import numpy as np

from benchmarks import percent, table
from benchmarks.blind.joined import Row, rounds
from benchmarks.fitting.conformal import COVERAGE, Floats, Judged, blind_rows, inside, spans
from benchmarks.fitting.conformal import scores as scores_of_halves
from benchmarks.fitting.intervals import of_rounds
from benchmarks.slow_scripts.command import before_gains, compared
from tracekit.analyzers.predict import Evidence, widths

EARLIER = "85991067"
_EARLIER_GAIN = 0.510
"""Width of gains that no trace shows in that commit (analyzers/prediction/intervals.toml), as a fraction of their
logarithm. Its other widths are those of today."""
_SETS: dict[Evidence, str] = {
    "timed": "blind rounds, latency told",
    "profiled": "blind rounds, plain traces",
    "script": "slow scripts, plain traces",
}
_SAID = {"timed": "capture", "profiled": "trace"}
_HEAD = ("rows", "widths", "count", "inside", "median high ÷ low", "interval score")


def score(low: float, high: float, measured: float) -> float:
    """Return the interval score of a speed-up that was measured."""
    missed = max(math.log(low / measured), math.log(measured / high), 0.0)
    return math.log(high / low) + 2 / (1 - COVERAGE) * missed


def text() -> str:
    """Return a table: each set as it was said, and with the widths of the earlier version and of today."""
    lines = [line for evidence, title in _SETS.items() for line in _lines(evidence, title)]
    return table(_HEAD, lines, 4)


def change(evidence: Evidence) -> float:
    """Return the score with today's widths, divided by that with those of the earlier version, on the same rows."""
    rows = _rows(evidence)
    return float(scores_of_halves(rows, _today(evidence)).mean() / scores_of_halves(rows, _earlier(evidence)).mean())


def _lines(evidence: Evidence, title: str) -> list[tuple[object, ...]]:
    rows = _rows(evidence)
    return [
        (title, "as predicted then", *_of_said(_said(evidence))),
        (title, f"of {EARLIER}", *_of_widths(rows, _earlier(evidence))),
        (title, "of today", *_of_widths(rows, _today(evidence))),
    ]


def _said(evidence: Evidence) -> list[tuple[float, float, float]]:
    """Return the lower end, the upper end, and what was measured."""
    if evidence == "script":
        return [(float(row["low"]), float(row["high"]), float(row["gain"])) for row in compared(before_gains())]
    said = [row for rows in rounds().values() for row in rows if row.evidence == _SAID[evidence] and row.compared]
    return [_ends(row) for row in said]


def _ends(row: Row) -> tuple[float, float, float]:
    assert row.low and row.high and row.measured
    return row.low, row.high, row.measured


def _rows(evidence: Evidence) -> list[Judged]:
    return list(blind_rows()) if evidence == "script" else list(of_rounds(evidence))


def _today(evidence: Evidence) -> Floats:
    return _for_rows(evidence, np.array(astuple(widths(evidence))))


def _earlier(evidence: Evidence) -> Floats:
    known = widths(evidence)
    if evidence == "script":
        known = replace(known, gain_busy=_EARLIER_GAIN, gain_waiting=_EARLIER_GAIN)
    return _for_rows(evidence, np.array(astuple(known)))


def _for_rows(evidence: Evidence, known: Floats) -> Floats:
    """Return the widths as the rows of the evidence need them. Those of scripts hold what was said as their outcome."""
    return np.array([0.0, 1.0, 0.0, *known[3:]]) if evidence == "script" else known


def _of_said(said: Sequence[tuple[float, float, float]]) -> tuple[object, ...]:
    hits = fmean(low <= gain <= high for low, high, gain in said)
    ratio = median(high / low for low, high, _ in said)
    return len(said), percent(hits), f"{ratio:.2f}", f"{fmean(score(*each) for each in said):.2f}"


def _of_widths(rows: Sequence[Judged], known: Floats) -> tuple[object, ...]:
    ratio, mean = np.median(spans(rows, known)), scores_of_halves(rows, known).mean()
    return len(rows), percent(float(inside(rows, known).mean())), f"{ratio:.2f}", f"{mean:.2f}"


def main() -> None:
    print(text())


if __name__ == "__main__":
    main()
