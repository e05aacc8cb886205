"""Searches for the largest batch whose step fits in the device's memory, by running steps."""

from collections.abc import Callable

_PROBES = 10
_CLOSE = 0.03
_CAREFUL = 0.97
"""Fraction of the free memory to aim at, because an allocator's blocks do not fill it."""
_GROWTH = 8
"""Largest growth from one run to the next. The optimizer may set the peak of small batches, so that it says little
about large ones."""
_BELOW = 0.9
"""Fraction of a batch size that did not fit to try next."""

Probe = Callable[[int], int | None]
"""Returns the peak bytes of a step at a batch size; None if it does not fit."""


def largest_batch(probe: Probe, capacity: int, start: int, likely: int | None = None) -> int | None:
    """Return the largest batch size that fits, within 3 % or as close as ten runs get; None if `start` does not fit.

    The peak grows in proportion to the batch. A run at a quarter of the `likely` largest batch gives the slope, and
    the third run is close to the limit. Without `likely`, the batch grows at most eightfold from run to run.
    """
    peak = probe(start)
    if peak is None:
        return None
    low, high = start, None
    guess = max(start + 1, likely // 4 if likely else 4 * start)
    slope = 1.0
    for _ in range(_PROBES):
        probed = probe(guess)
        if probed is None:
            high = guess
        else:
            slope = max(1.0, (probed - peak) / (guess - low))
            low, peak = guess, probed
        room = int((capacity - peak) / slope)
        if min(room, high - low if high else room) <= max(1, _CLOSE * low):
            break
        guess = max(low + 1, min(low + int(_CAREFUL * room), _most(low, high)))
    return low


def _most(low: int, high: int | None) -> int:
    """Return the batch size to try between the largest that fits and the smallest that does not; None if there
    is none."""
    if high is None:
        return _GROWTH * low
    if low < high // _GROWTH:
        return high // 4
    return max(int(_BELOW * high), (low + high) // 2)
