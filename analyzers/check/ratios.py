"""Intervals of ratios from repeats, on logarithms of times, and the points at which a series of them changes its level.

A repeat is a run if there are enough runs. Otherwise it is a step, and the spread between runs, which the steps of one
run do not show, is assumed.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracekit.analyzers.check.verdict import Ratio
from tracekit.analyzers.core import Amount, Floats, digamma, t_quantile, trigamma, trigamma_inverse

FEWEST_DF = 2
"""Fewest degrees of freedom to estimate the spread between runs: two runs on each side, or three and one."""
_ENOUGH_FOR_MEDIAN = 5
_MANY = 10**9


def ratios_of_runs(before: Floats, after: Floats, level: float, *, together: bool) -> list[Ratio]:
    """Return a ratio for each row of two arrays of log times, which have one column per run.

    The intervals hold all true ratios at once with probability 1 - `level` (Bonferroni). Both sides have the same
    variance. With `together`, the rows are parts of a step: their common change is subtracted, and their variances are
    moderated.
    """
    if together:
        before, after = _subtract_common(before, after)
    k_before, k_after = before.shape[1], after.shape[1]
    df = float(k_before + k_after - 2)
    variance = (_squares(before) + _squares(after)) / df
    if together:
        variance, df = moderated(variance, df)
    t = t_quantile(1 - level / (2 * max(1, len(before))), df)
    half = t * np.sqrt(variance * (1 / k_before + 1 / k_after))
    return _ratios(after.mean(axis=1) - before.mean(axis=1), half)


def ratios_of_steps(
    before: Floats, after: Floats, runs: tuple[int, int], spread: float, level: float, *, together: bool
) -> list[Ratio]:
    """Return the same as `ratios_of_runs` for one column per step.

    `runs` is the number of runs before and after, `spread` the assumed standard deviation of the logarithm between
    runs.
    """
    if together:
        before, after = _subtract_common(before, after)
    between = spread**2 * (1 / runs[0] + 1 / runs[1])
    within = [_variance_of_center(side) for side in (before, after)]
    total = between + within[0][0] + within[1][0]
    fewest = np.array([max(1.0, min(within[0][1], within[1][1]))])
    known = np.isfinite(total)
    share = np.where(known, (within[0][0] + within[1][0]) / np.where(known, np.maximum(total, 1e-30), 1.0), 1.0)
    probability = 1 - level / (2 * max(1, len(before)))
    df = np.broadcast_to(fewest / np.clip(share, 1e-3, 1.0) ** 2, total.shape)
    half = np.array([t_quantile(probability, float(each)) for each in df]) * np.sqrt(total)
    return _ratios(_center(after) - _center(before), half)


def ratio_to_limit(most: float, after: Floats, runs: int, spread: float, level: float) -> Ratio:
    """Return the ratio of times in ns to a limit, with `runs` and `spread` as in `ratios_of_steps`."""
    logs = np.log(after)[np.newaxis]
    limit = np.full_like(logs, math.log(most))
    return ratios_of_steps(limit, logs, (_MANY, runs), spread, level, together=False)[0]


def paired(pairs: Sequence[tuple[float, float]], level: float) -> Ratio:
    """Return the ratio of times measured alternately, (before, after) in each block: a t interval of the log ratios."""
    logs = np.log([after / before for before, after in pairs])
    half = t_quantile(1 - level / 2, len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return _ratios(np.array([logs.mean()]), np.array([half]))[0]


def exact(before: float, after: float) -> Ratio:
    """Return the ratio of times without noise, which modelled runs have."""
    ratio = after / before
    return Ratio(ratio, ratio, ratio)


def _ratios(center: Floats, half: Floats) -> list[Ratio]:
    with np.errstate(over="ignore"):  # an interval of one run may be unbounded
        ends = np.exp([center - half, center, center + half])
    return [Ratio(*column) for column in ends.T.tolist()]


def _squares(values: Floats) -> Floats:
    return ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)


def _subtract_common(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Subtract the median change, which all parts of a run share (clock rate, load of the machine)."""
    if len(before) < _ENOUGH_FOR_MEDIAN:
        return before, after
    reference = before.mean(axis=1, keepdims=True)
    sides = (side - np.median(side - reference, axis=0, keepdims=True) for side in (before, after))
    before, after = sides
    return before, after


def _trimmed(values: Floats) -> tuple[Floats, int]:
    """Return each row in order, and the number of values that are trimmed at each end: a fifth, from five values on."""
    size = values.shape[1]
    return np.sort(values, axis=1), size // 5 if size >= _ENOUGH_FOR_MEDIAN else 0


def _center(values: Floats) -> Floats:
    """Return the trimmed means, which a single outlier, such as a garbage collection, does not move."""
    ordered, cut = _trimmed(values)
    return ordered[:, cut : values.shape[1] - cut].mean(axis=1)


def _variance_of_center(values: Floats) -> tuple[Floats, float]:
    """Return the variances of the trimmed means, and their degrees of freedom (Yuen 1974)."""
    ordered, cut = _trimmed(values)
    size = values.shape[1]
    kept = size - 2 * cut
    if kept < 2:
        return np.full(len(values), np.inf), 1.0
    winsorized = np.clip(ordered, ordered[:, [cut]], ordered[:, [size - cut - 1]])
    return _squares(winsorized) / (kept * (kept - 1)), float(kept - 1)


_FEWEST = 5
"""Smallest number of parts whose variances are moderated."""


def moderated(variances: Floats, df: float) -> tuple[Floats, float]:
    """Return posterior variances and their degrees of freedom, from sample variances of `df` degrees of freedom.

    The prior is a scaled inverse chi-squared distribution, fitted to the logarithms of the variances by moments.
    """
    positive = variances[variances > 0]
    if len(positive) < _FEWEST:
        return variances, df
    logs = np.log(positive) - digamma(df / 2) + math.log(df / 2)
    excess = float(logs.var(ddof=1)) - trigamma(df / 2)
    if excess <= 0:
        prior, scale = math.inf, math.exp(float(logs.mean()))
        return np.full(len(variances), scale), df * len(positive)
    prior = 2 * trigamma_inverse(excess)
    scale = math.exp(float(logs.mean()) + digamma(prior / 2) - math.log(prior / 2))
    posterior = (prior * scale + df * variances) / (prior + df)
    return posterior, min(prior + df, df * len(positive))


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
