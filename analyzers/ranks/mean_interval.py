"""Confidence intervals of means of few values."""

import math

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.student import t_quantile


def mean_interval(values: npt.NDArray, confidence: float) -> Interval:
    """Return the mean with its two-sided interval, which is infinitely wide for fewer than two values."""
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval(-math.inf, mean, math.inf)
    half = t_quantile(0.5 + confidence / 2, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean - half, mean, mean + half)
