"""Widths of intervals by conformal prediction: the smallest that hold so large a part of what was measured.

Machines count the same, however many rows there are of each: the next prediction is made for another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.predict import Sources
from tracekit.analyzers.predict.uncertainty import host_ends

Floats = npt.NDArray[np.float64]

COVERAGE = 0.85
"""Fraction of the measured speed-ups that intervals must contain, as the mean over machines."""
_REPEAT = {"modelled": (0.05, 0.08)}
_REPEAT_MEASURED = (0.015, 0.02, 0.025, 0.03)
"""Not scaled: what the same differs by when it is measured twice bounds what is explained by nothing else; where no
kernel was measured, the error of kernel times does."""
_OUTCOME = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
_HOST = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
_SCALES = np.geomspace(0.1, 5.0, 60)
NAMES = ("repeat", "outcome", "host")


@dataclass(frozen=True)
class Judged:
    """A speed-up that was predicted and measured."""

    evidence: str
    machine: str
    family: str
    """The family of the model."""
    optimization: str
    residual: float
    """Logarithm of measured over predicted."""
    sources: Sources


def fit(rows: Sequence[Judged]) -> Floats:
    """Return the widths (NAMES) with the best intervals of all that hold COVERAGE of the rows.

    The best have the least interval score: the width, and for a miss 2 / (1 - COVERAGE) times what it misses by
    (Gneiting and Raftery, 2007).
    """
    weights, off = _weights(rows), _off(rows)
    best, least = np.zeros(len(NAMES)), np.inf
    for host in _HOST:
        hosts = np.array([_hosts(rows, scale * host) for scale in _SCALES])
        for repeat, outcome in product(_REPEAT.get(rows[0].evidence, _REPEAT_MEASURED), _OUTCOME):
            widths = np.stack([np.full(len(_SCALES), repeat), _SCALES * outcome, _SCALES * host], axis=1)
            halves = np.sqrt(repeat**2 + (widths[:, 1, None, None] * _outcomes(rows)) ** 2 + hosts**2)
            reached = (off <= _side(halves, rows)) @ weights >= COVERAGE - 1e-9
            if reached.any():
                half, at = halves[reached.argmax()], int(reached.argmax())
                missed = np.maximum(off - _side(half, rows), 0.0)
                score = float(((half.sum(axis=0) + 2 / (1 - COVERAGE) * missed) * weights).sum())
                best, least = (widths[at], score) if score < least else (best, least)
    return best


def inside(rows: Sequence[Judged], widths: Floats) -> npt.NDArray[np.bool_]:
    """Select the rows that lie within their intervals."""
    return _off(rows) <= _side(_halves(rows, widths), rows)


def spans(rows: Sequence[Judged], widths: Floats) -> Floats:
    """Return the upper end of each row's interval, divided by the lower end."""
    return np.exp(_halves(rows, widths).sum(axis=0))


def scores(rows: Sequence[Judged], widths: Floats) -> Floats:
    """Return the interval score of each row, in which less is better."""
    halves = _halves(rows, widths)
    return halves.sum(axis=0) + 2 / (1 - COVERAGE) * np.maximum(_off(rows) - _side(halves, rows), 0.0)


def without_each(rows: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, float]:
    """Return, for each group, the fraction of its rows inside intervals whose widths were measured on the others."""
    names = sorted({key(row) for row in rows})
    shares = {}
    for name in names:
        rest = [row for row in rows if key(row) != name]
        group = [row for row in rows if key(row) == name]
        shares[name] = float(inside(group, fit(rest)).mean()) if rest else float("nan")
    return shares


def _weights(rows: Sequence[Judged]) -> Floats:
    machines = [row.machine for row in rows]
    each = np.array([1 / machines.count(machine) for machine in machines])
    return each / each.sum()


def _off(rows: Sequence[Judged]) -> Floats:
    return np.abs([row.residual for row in rows])


def _hosts(rows: Sequence[Judged], width: float) -> Floats:
    """Return how far hosts of this width lower and raise each row, by side and row."""
    return np.array([_ends(tuple(row.sources.host.items()), width) for row in rows]).T


@cache
def _ends(changes: tuple[tuple[float, float], ...], width: float) -> tuple[float, float]:
    return host_ends(dict(changes), width)


def _outcomes(rows: Sequence[Judged]) -> Floats:
    """Return how far outcomes lower and raise each row, by side and row."""
    return np.array([row.sources.outcome for row in rows]).T


def _halves(rows: Sequence[Judged], widths: Floats) -> Floats:
    """Return the half-widths by side and row."""
    return np.sqrt(widths[0] ** 2 + (widths[1] * _outcomes(rows)) ** 2 + _hosts(rows, widths[2]) ** 2)


def _side(halves: Floats, rows: Sequence[Judged]) -> Floats:
    """Return the half-widths (the last two dims are sides and rows) of the side on which each row was measured."""
    return np.where([row.residual < 0 for row in rows], halves[..., 0, :], halves[..., 1, :])
