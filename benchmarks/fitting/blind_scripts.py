"""Gains of the slow scripts in benchmarks/cases: as predicted before anybody looked at them, and as measured."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fitting.conformal import COVERAGE, Floats, Judged, inside
from tracekit.analyzers.prediction.uncertainty import Sources

CASES = Path(__file__).parents[1] / "cases"
sys.path.append(str(CASES))

from catalogue import Case, cases  # noqa: E402
from diagnose import BLIND, RECORDED  # noqa: E402

_STEPS = np.arange(0.0, 1.0, 0.01)
_SAID_WITH = {7: 0.49}
"""Width `gain` that the intervals of a set had when they were said; none in other sets."""


def blind_rows() -> Iterator[Judged]:
    """Yield a row for each case whose first advice is the mend that was measured. Its outcomes are the ends that were
    predicted."""
    recorded = {number: folder for number, folder in RECORDED.items() if (CASES / folder / BLIND).exists()}
    for number, folder in recorded.items():
        told = json.loads((CASES / folder / BLIND).read_text("utf-8"))
        measured = json.loads((CASES / folder / "measured.json").read_text("utf-8"))["cases"]
        for case in cases(number).values():
            if case.name in told and "gain" in measured.get(case.name, {}):
                yield from _row(number, case, told[case.name], measured[case.name]["gain"]["median"])


def _row(number: int, case: Case, told: dict, gain: float) -> Iterator[Judged]:
    first = told["advice"][0] if told["advice"] else {"id": ""}
    if first["id"] in case.measured_ids:
        asked = told.get("of_mend", first)
        low, expected, high = (math.log(asked[end]) for end in ("low", "expected", "high"))
        untold = _SAID_WITH.get(number, 0.0) * expected
        sources = Sources(outcome=(_without(expected - low, untold), _without(high - expected, untold)))
        yield Judged("script", f"set {number}", case.name, first["id"], math.log(gain) - expected, sources, expected)


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
