"""Widths of intervals by conformal prediction: the smallest that hold so large a part of what was measured.

Machines count the same, however many rows there are of each: the next prediction is made for another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.prediction.uncertainty import Sources

Floats = npt.NDArray[np.float64]

COVERAGE = 0.9
"""Part of the measured speed-ups that intervals are to hold."""
_REPEAT = (0.015, 0.02, 0.025, 0.03)
"""Not scaled: what the same differs by when it is measured twice bounds what is explained by nothing else."""
_OUTCOME = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
_HOST = (0.0, 0.3, 0.6, 1.0)
_DRIFT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6)
NAMES = ("repeat", "outcome", "host", "drift")


@dataclass(frozen=True)
class Judged:
    """A speed-up that was predicted and measured."""

    evidence: str
    machine: str
    family: str
    """Of the model."""
    optimization: str
    residual: float
    """Logarithm of measured over predicted."""
    sources: Sources


def fit(rows: Sequence[Judged]) -> Floats:
    """The widths (NAMES) with the best intervals of all that hold COVERAGE of the rows: those with the least interval
    score, the width and, of a miss, 2 / (1 - COVERAGE) times what it misses by (Gneiting and Raftery, 2007)."""
    weights, terms, off = _weights(rows), _terms(rows), _off(rows)
    best, least = np.zeros(len(NAMES)), np.inf
    for shape in product(_REPEAT, _OUTCOME, _HOST, _DRIFT):
        both = np.sqrt(((terms * np.array(shape)[:, None, None]) ** 2).sum(axis=0))
        rest = np.maximum(both**2 - shape[0] ** 2, 1e-12)
        scale = _quantile(np.sqrt(np.maximum(off**2 - shape[0] ** 2, 0.0) / _side(rest, rows)), weights)
        half = np.sqrt(shape[0] ** 2 + scale**2 * rest)
        missed = np.maximum(off - _side(half, rows), 0.0)
        score = float(((half.sum(axis=0) + 2 / (1 - COVERAGE) * missed) * weights).sum())
        if score < least:
            best, least = np.array([shape[0], *(scale * each for each in shape[1:])]), score
    return best


def inside(rows: Sequence[Judged], widths: Floats) -> npt.NDArray[np.bool_]:
    """Which rows lie within their intervals."""
    return _off(rows) <= _side(_halves(rows, widths), rows)


def spans(rows: Sequence[Judged], widths: Floats) -> Floats:
    """Upper over lower end of each row's interval."""
    return np.exp(_halves(rows, widths).sum(axis=0))


def without_each(rows: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, float]:
    """Group -> part of its rows within intervals that were fitted on the other groups."""
    names = sorted({key(row) for row in rows})
    found = {}
    for name in names:
        rest = [row for row in rows if key(row) != name]
        group = [row for row in rows if key(row) == name]
        found[name] = float(inside(group, fit(rest)).mean()) if rest else float("nan")
    return found


def _weights(rows: Sequence[Judged]) -> Floats:
    machines = [row.machine for row in rows]
    each = np.array([1 / machines.count(machine) for machine in machines])
    return each / each.sum()


def _off(rows: Sequence[Judged]) -> Floats:
    return np.abs([row.residual for row in rows])


def _terms(rows: Sequence[Judged]) -> Floats:
    """By name, side (down, up) and row."""
    held = [
        [[1.0, row.sources.outcome[side], row.sources.host[side], row.sources.drift] for row in rows] for side in (0, 1)
    ]
    return np.array(held).transpose(2, 0, 1)


def _halves(rows: Sequence[Judged], widths: Floats) -> Floats:
    """By side and row."""
    return np.sqrt(((_terms(rows) * widths[:, None, None]) ** 2).sum(axis=0))


def _side(both: Floats, rows: Sequence[Judged]) -> Floats:
    """Of the side on which each row was measured."""
    return np.where([row.residual < 0 for row in rows], both[0], both[1])


def _quantile(scores: Floats, weights: Floats) -> float:
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    return float(scores[order][np.searchsorted(reached, COVERAGE * (1 - 1e-9))])
