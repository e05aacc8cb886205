"""Confidence intervals of means of few values."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.interval import Interval

_SPLITS = 200


@lru_cache
def quantile(confidence: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution by bisection of its distribution function, integrated by Simpson's
    rule."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < confidence else (low, middle)
    return high


def _below(t: float, degrees: int) -> float:
    """Return P(T <= t) for t >= 0: with t = sqrt(degrees) tan(angle), the density is a power of the cosine."""
    angle = np.linspace(0.0, math.atan(t / math.sqrt(degrees)), 2 * _SPLITS + 1)
    density = np.cos(angle) ** (degrees - 1)
    weights = np.ones(len(angle))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    area = float((density * weights).sum() * (angle[1] - angle[0]) / 3) if degrees else 0.0
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(math.pi)
    return 0.5 + area * math.exp(log_scale)


def mean_interval(values: npt.NDArray, confidence: float) -> Interval:
    """Return the mean with its two-sided interval, which is infinitely wide for fewer than two values."""
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval(-math.inf, mean, math.inf)
    half = quantile(0.5 + confidence / 2, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean - half, mean, mean + half)
