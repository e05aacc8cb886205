"""Search for the largest batch whose step fits in the device's memory, by running it."""

from collections.abc import Callable

_PROBES = 10
_CLOSE = 0.03
_CAREFUL = 0.97
"""Share of the free memory to aim at: blocks of an allocator do not fill it."""
_GROWTH = 8
"""From one run to the next: the peaks of small batches can be the optimizer's, and say little of large ones."""
_BELOW = 0.9
"""Fraction of a batch size that did not fit to try next."""

Probe = Callable[[int], int | None]
"""Peak bytes of a step at a batch; None: it does not fit."""


def largest_batch(probe: Probe, capacity: int, start: int, likely: int | None = None) -> int | None:
    """Within 3 %, or what ten runs find. None: not even the batch it starts with fits.

    The peak grows in proportion to the batch: a run at a quarter of the `likely` largest tells the slope, a third one
    is near the end. `likely` None: the batch grows at most eightfold from run to run.
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
    """What to try at most between a batch that fits and one that does not; None: none is known."""
    if high is None:
        return _GROWTH * low
    if low < high // _GROWTH:
        return high // 4
    return max(int(_BELOW * high), (low + high) // 2)
