"""Finds the points at which a series of measurements changes its level."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracekit.analyzers.core import Amount

Floats = npt.NDArray[np.float64]

_PENALTY = 3.0
"""Penalty of a change, in log n squared standard deviations."""
_TO_DEVIATION = 1.4826 / math.sqrt(2)
"""Factor from the median absolute difference of neighbours to their standard deviation."""


def change_points(values: Sequence[float], least_change: float = 0.01) -> list[int]:
    """Return the indices at which a new level begins, by optimal partitioning of the logarithms (Jackson 2005).

    The noise is estimated from the differences of neighbours. It is at least `least_change`, so that smaller changes
    are not reported.
    """
    logs = np.log(np.asarray(values, dtype=float))
    size = len(logs)
    if size < 2:
        return []
    noise = max(_TO_DEVIATION * float(np.median(np.abs(np.diff(logs)))), least_change / 2)
    penalty = _PENALTY * math.log(max(size, 3)) * noise**2
    cost, last = np.full(size + 1, np.inf), np.zeros(size + 1, dtype=int)
    cost[0] = -penalty
    sums, squares = np.append(0.0, np.cumsum(logs)), np.append(0.0, np.cumsum(logs**2))
    for end in range(1, size + 1):
        starts = np.arange(end)
        length = end - starts
        within = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        total = cost[:end] + np.maximum(within, 0.0) + penalty
        last[end] = int(total.argmin())
        cost[end] = total[last[end]]
    return _starts(last)


def _starts(last: npt.NDArray[np.int64]) -> list[int]:
    """Return the starts of all segments except the first."""
    starts, end = [], len(last) - 1
    while end > 0:
        end = int(last[end])
        starts.append(end)
    return sorted(starts)[1:]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """The values that were measured at one commit."""

    when: str
    """Date and time, UTC."""
    commit: str
    what: str
    """"baseline", or the verdict of a check."""
    latency_us: Amount
    low_us: Amount
    high_us: Amount
    """The shortest and longest run; for a single run, its 10th and 90th percentile if they are known."""
    counters: dict[str, Amount] = {}
