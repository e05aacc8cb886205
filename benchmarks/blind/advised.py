"""First advice beside the best that was measured of a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from joined import TIE, Row


@dataclass(frozen=True)
class Advised:
    """One run on one machine, judged by its measured rows for latency."""

    row: Row
    """Any of the run's."""
    best: str
    """What was measured fastest; "": nothing gains."""
    gain: float
    right: bool | None
    """None: the advice was not measured, neither alone nor as a part of what was."""


def advised(rows: Iterable[Row]) -> list[Advised]:
    """Batching, which is a gain in throughput, is left out."""
    measured = [row for row in rows if row.measured is not None and row.kind != "batching"]
    measured.sort(key=_run)
    return [_judged(list(group)) for _, group in groupby(measured, key=_run)]


def _run(row: Row) -> tuple[str, str, str]:
    return row.machine, row.run.name, row.evidence


def _judged(rows: list[Row]) -> Advised:
    best = max(rows, key=lambda row: row.measured or 0.0)
    gain, advice = best.measured or 0.0, rows[0].first_advice
    if gain <= 1 + TIE:
        worse = any(row.kind == advice for row in rows)
        return Advised(best, "", gain, not worse if advice else True)
    of_advice = [row.measured or 0.0 for row in rows if advice in row.kind.split("+")]
    right = max(of_advice) >= gain / (1 + TIE) if of_advice else False if not advice else None
    return Advised(best, best.optimization, gain, right)
