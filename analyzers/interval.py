"""A value that is not known exactly."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An expected value with its bounds: 80 % of measurements are expected inside."""

    low: float
    expected: float
    high: float
