"""Compares the first optimization of the ranking, and the first advice, with the best one measured in a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from joined import TIE, Row

from tracekit.advise import pays
from tracekit.analyzers.core import Interval


@dataclass(frozen=True)
class Advised:
    """Whether the advice for one run on one machine was right: no measured variant, nor the unmodified run, is faster
    than the advised one by more than `TIE`."""

    ranked: bool | None
    """Judges the recommended row with the largest expected gain; None if all were refused."""
    first: bool | None
    """Judges the first advice, alone or in a combination; None if it was not measured."""


def advised(rows: Iterable[Row]) -> list[Advised]:
    """Judge the runs by latency. Batching, which gains throughput, is left out."""
    measured = [row for row in rows if row.measured is not None and row.kind != "batching"]
    measured.sort(key=_run)
    return [_judged(list(group)) for _, group in groupby(measured, key=_run)]


def _run(row: Row) -> tuple[str, str, str]:
    return row.machine, row.run.name, row.evidence


def _judged(rows: list[Row]) -> Advised:
    best = max(1.0, *(_gain(row) for row in rows)) / (1 + TIE)
    predicted = [row for row in rows if row.low is not None]
    worth = [row for row in predicted if pays(Interval(row.low or 0.0, row.expected or 0.0, row.high or 0.0))]
    reached = max((row.expected or 0.0, _gain(row)) for row in worth)[1] if worth else 1.0
    advice = [_gain(row) for row in rows if rows[0].first_advice in row.kind.split("+")]
    return Advised(reached >= best if predicted else None, max(advice) >= best if advice else None)


def _gain(row: Row) -> float:
    return row.measured or 0.0
