"""A value with uncertainty."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An expected value with bounds, between which 80 % of measurements are expected."""

    low: float
    expected: float
    high: float
