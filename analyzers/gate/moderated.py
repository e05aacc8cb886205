"""Variances of many parts that borrow strength from each other (Smyth 2004, as in limma). With three runs per side, the
variance of a single part has too few degrees of freedom to decide anything."""

import math

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.student import digamma, trigamma, trigamma_inverse

Floats = npt.NDArray[np.float64]

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
