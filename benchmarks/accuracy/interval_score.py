"""Scores predicted intervals by one number that width cannot win: the interval (Winkler) score.

    python -m benchmarks accuracy.interval_score      # the table of docs/diagnosis.md

The score of an interval of a log speed-up is its width, and for a miss 2 / (1 - COVERAGE) times what it misses by
(Gneiting and Raftery, 2007). Less is better.
"""

import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks import percent, table
from benchmarks.blind.joined import Row as Prediction
from benchmarks.blind.joined import rounds
from benchmarks.fitting import scripts
from benchmarks.fitting.conformal import Floats, inside, spans
from benchmarks.fitting.conformal import scores as scores_of_halves
from benchmarks.fitting.intervals import of_rounds
from benchmarks.slow_scripts.command import LAST_SETS, Row, before_gains, compared, sets_of
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Evidence, uncertainty, widths

EARLIER = "85991067"
_EARLIER_GAIN = 0.51
"""Error of gains that no trace shows in that commit (analyzers/prediction/intervals.toml), as a fraction of their
logarithm, in addition to what was said."""
_SAID_WITH = {"seventh": 0.49}
"""The same in the intervals of a set as they were said; none in other sets."""
_ROUNDS: dict[Evidence, str] = {"timed": "blind rounds, latency told", "profiled": "blind rounds, plain traces"}
_SAID = {"timed": "capture", "profiled": "trace"}
_HEAD = ("rows", "widths", "count", "inside", "median high ÷ low", "interval score")
Judged = tuple[Interval, float]
"""An interval, and what was measured."""


def text() -> str:
    """Return a table: each set as it was said, and with the widths of the earlier version and of today."""
    lines = [line for evidence, title in _ROUNDS.items() for line in _of_rounds(evidence, title)]
    return table(_HEAD, [*lines, *_of_scripts()], 4)


def _of_rounds(evidence: Evidence, title: str) -> list[tuple[object, ...]]:
    rows, today = list(of_rounds(evidence)), _today(evidence)
    ratio, mean = np.median(spans(rows, today)), scores_of_halves(rows, today).mean()
    numbers = len(rows), percent(float(inside(rows, today).mean())), f"{ratio:.2f}", f"{mean:.2f}"
    said = [
        _of_round(row) for rows in rounds().values() for row in rows if row.evidence == _SAID[evidence] and row.compared
    ]
    return [
        (title, "as predicted then", *_summary(said)),
        (title, f"of {EARLIER} and of today", *numbers),
    ]


def _today(evidence: Evidence) -> Floats:
    known = widths(evidence)
    return np.array([known.repeat, known.outcome, known.host])


def _of_round(row: Prediction) -> Judged:
    assert row.low and row.expected and row.high and row.measured
    return Interval(row.low, row.expected, row.high), row.measured


def _of_scripts() -> list[tuple[object, ...]]:
    every, blind = compared(before_gains()), scripts.blind_rows()
    kept = [row for row in every if (row["set"], row["script"]) in {(one.set, one.script) for one in blind}]
    last = sets_of(before_gains())[-LAST_SETS:]
    since = [row for row in every if row["set"] in last]
    later, known = scripts.later_rows(), widths("script")
    return [
        ("slow scripts, plain traces", "as predicted then", *_summary(map(_as_said, every))),
        ("those with kept traces", f"of {EARLIER}", *_summary(map(_as_earlier, kept))),
        ("those with kept traces", "of today, each set left out", len(blind), *_of_sets_left_out()),
        *([("the last eight sets", "as predicted then", *_summary(map(_as_said, since)))] if since else []),
        ("predicted again, gains known", "of today", *_summary((row.interval(known), row.measured) for row in later)),
        ("rounds, and scripts with kept traces", f"of {EARLIER}", *_pooled(_mean(map(_as_earlier, kept)), len(kept))),
        ("rounds, and scripts with kept traces", "of today", *_pooled(_known()["every_score"], len(kept))),
    ]


def _pooled(score: float, count: int) -> tuple[object, ...]:
    """Return the number of all rows of rounds, which score the same in both versions, and of `count` scripts; and the
    mean score of them all."""
    of_rows = [scores_of_halves(list(of_rounds(evidence)), _today(evidence)) for evidence in _ROUNDS]
    every = np.concatenate([*of_rows, np.full(count, score)])
    return len(every), "–", "–", f"{every.mean():.2f}"


def gain_on_earlier() -> float:
    """Return the score of scripts with today's widths, of which each set was left out, over that of the earlier
    version, on the same rows."""
    kept = {(row.set, row.script) for row in scripts.blind_rows()}
    rows = [_as_earlier(row) for row in compared(before_gains()) if (row["set"], row["script"]) in kept]
    return float(_known()["every_score"]) / _mean(rows)


def _of_sets_left_out() -> tuple[object, ...]:
    known = _known()
    return percent(known["every_inside"]), f"{known['every_span']:.2f}", f"{known['every_score']:.2f}"


def _known() -> dict[str, float]:
    file = Path(uncertainty.__file__).with_name("intervals.toml")
    return dict(tomllib.loads(file.read_text(encoding="utf-8"))["script"])


def _as_said(row: Row) -> Judged:
    return Interval(*(float(row[end]) for end in ("low", "expected", "high"))), float(row["gain"])


def _as_earlier(row: Row) -> Judged:
    """Return the interval of a script with the error of gains of the earlier version."""
    said, measured = _as_said(row)
    gain, before = math.log(said.expected), _SAID_WITH.get(row["set"], 0.0)
    ends = (math.log(said.expected / said.low), math.log(said.high / said.expected))
    down, up = (math.sqrt(max(end**2 - (before * gain) ** 2, 0.0) + (_EARLIER_GAIN * gain) ** 2) for end in ends)
    return Interval(said.expected * math.exp(-down), said.expected, said.expected * math.exp(up)), measured


def _score(judged: Judged) -> float:
    bounds, measured = judged
    return scripts.score(bounds.low, bounds.high, measured)


def _summary(rows: Iterable[Judged]) -> tuple[object, ...]:
    judged = list(rows)
    hits = fmean(bounds.low <= measured <= bounds.high for bounds, measured in judged)
    ratio = np.median([bounds.high / bounds.low for bounds, _ in judged])
    return len(judged), percent(hits), f"{ratio:.2f}", f"{_mean(judged):.2f}"


def _mean(judged: Iterable[Judged]) -> float:
    return fmean(map(_score, judged))


def main() -> None:
    print(text())


if __name__ == "__main__":
    main()
