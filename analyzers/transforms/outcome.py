"""Scenarios of how an optimization turns out, for the ends of an interval."""

from functools import lru_cache
from typing import Literal

from tracekit.analyzers.interval import Interval

Outcome = Literal["low", "expected", "high"]
"""The scenario, named after the end of the interval that it predicts."""

remembered = lru_cache(16)
"""Caches results that several optimizations of one run share."""


def pick(interval: Interval, outcome: Outcome) -> float:
    """Return the end of the interval that belongs to the outcome."""
    return float(getattr(interval, outcome))
