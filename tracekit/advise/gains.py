"""Judges gains: whether a step is worth advising, and how useful it is to a person."""

import math
from typing import TYPE_CHECKING

from tracekit.analyzers.core import Interval

if TYPE_CHECKING:
    from tracekit.advise.optimization import Optimization

WORTHWHILE = 1.03
"""Lower end above which a gain counts as sure. An optimization that fixes a mistake of the script costs nothing, so its
expected gain must reach this value."""
LARGE, _UNLIKELY = 1.1, 0.8
"""Smallest expected gain, and smallest distance of a loss from it, of an optimization whose gain is not sure."""


def pays(gain: Interval) -> bool:
    """Return whether a gain is sure, or large with an unlikely loss (about one in ten): a speed-up of 1 is at least 0.8
    times as far from it (in the logarithm) as the lower end, below which one measurement in sixteen falls."""
    unlikely = math.log(gain.expected) >= _UNLIKELY * math.log(gain.expected / gain.low)
    return gain.low >= WORTHWHILE or (gain.expected >= LARGE and unlikely)


def worthwhile(optimization: "Optimization", gain: Interval) -> bool:
    """Return whether a gain is enough to recommend the optimization."""
    return gain.expected >= WORTHWHILE and gain.low >= 1.0 if optimization.fixes_mistake else pays(gain)


_OF_THE_WAY = 0.47
"""Distance at which one gain in four is smaller, in those of the lower end (normal: 0.67 of 1.44 deviations)."""


def usefulness(gain: Interval, effort: float) -> float:
    """Return what a person gets for trying it: the gain (in the logarithm) that three of four such changes exceed,
    divided by the effort. A lower end of 1 says that nothing is lost, not that something is gained."""
    expected, low = math.log(gain.expected), math.log(gain.low)
    return max(0.0, expected - _OF_THE_WAY * (expected - low)) / effort
