"""Gains of the slow scripts (benchmarks/slow_scripts): as predicted before anybody looked at them, and as measured."""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fitting.conformal import COVERAGE, Floats, Judged, inside
from tracekit.analyzers.predict import Sources

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.slow_scripts.table import Row, before_gains, compared

_STEPS = np.arange(0.0, 1.0, 0.01)
_SAID_WITH = {"seventh": 0.49}
"""Width `gain` that the intervals of a set had when they were said; none in other sets."""


def blind_rows() -> Iterator[Judged]:
    """Yield a row for each script whose first advice is the fix that was measured. Its outcomes are the ends that were
    predicted."""
    return map(_judged, compared(before_gains()))


def _judged(row: Row) -> Judged:
    low, expected, high = (math.log(float(row[end])) for end in ("low", "expected", "high"))
    untold = _SAID_WITH.get(row["set"], 0.0) * expected
    sources = Sources(outcome=(_without(expected - low, untold), _without(high - expected, untold)))
    off = math.log(float(row["gain"])) - expected
    return Judged("script", f"{row['set']} set", row["script"], row["first_advice"], off, sources, expected)


def _without(end: float, untold: float) -> float:
    """Return the end of an interval without this independent part of it."""
    return math.sqrt(max(end**2 - untold**2, 0.0))


def fit_gain(rows: Sequence[Judged]) -> Floats:
    """Return the widths with the smallest `gain` that hold COVERAGE of the rows, beside what was predicted."""
    for gain in _STEPS:
        widths = np.array([0.0, 1.0, 0.0, gain])
        if inside(rows, widths).mean() >= COVERAGE:
            return widths
    raise ValueError("The blind predictions are off by more than their whole gains.")
