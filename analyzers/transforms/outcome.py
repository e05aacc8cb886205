"""The ends of an interval as scenarios: how well an optimization turns out."""

from functools import lru_cache
from typing import Literal

from tracekit.analyzers.interval import Interval

Outcome = Literal["low", "expected", "high"]
"""How well an optimization turns out: the end of the interval that a prediction is for."""

remembered = lru_cache(16)
"""Caches what several optimizations of one run build on."""


def pick(interval: Interval, outcome: Outcome) -> float:
    """The end of the interval that belongs to the outcome."""
    return float(getattr(interval, outcome))
