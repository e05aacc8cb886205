"""The largest batch whose step fits in a device's memory, found by running it."""

from collections.abc import Callable
from dataclasses import replace

from analyzers.errors import InputError
from tracekit.capture.packages import require
from tracekit.measurement import memory
from tracekit.measurement.measure import ready
from tracekit.measurement.subject import Subject

_PROBES = 10
_CLOSE = 0.03
_CAREFUL = 0.97
"""Share of the free memory to aim at: blocks of an allocator do not fill it."""
_MOST = 1 << 16

Probe = Callable[[int], int | None]
"""Peak bytes of a step at a batch; None: it does not fit."""


def largest_batch(probe: Probe, capacity: int, start: int) -> int | None:
    """Within 3 %, or what ten runs find. None: not even the batch it starts with fits.

    The peak grows in proportion to the batch, so that two runs tell where to look.
    """
    peak = probe(start)
    if peak is None:
        return None
    low, high, slope, guess = start, _MOST, 1.0, 4 * start
    for _ in range(_PROBES):
        found = probe(guess)
        if found is None:
            high = guess
        else:
            slope = max(1.0, (found - peak) / (guess - low))
            low, peak = guess, found
        room = int((capacity - peak) / slope)
        if min(high - low, room) <= max(1, _CLOSE * low):
            break
        guess = min(low + max(1, int(_CAREFUL * room)), (low + high) // 2 if high < _MOST else _MOST)
    return low


def probe_of(subject: Subject) -> Probe:
    """Runs a step of the subject at a batch. Compiled code and graphs are left out: they hold about the same."""
    plain = replace(subject, compile_mode="", graphs=False)

    def probe(batch: int) -> int | None:
        memory.release()
        try:
            return ready(replace(plain, settings=replace(plain.settings, batch_size=batch))).peak_memory_bytes()
        except InputError as error:
            if isinstance(error.__cause__, require("torch.cuda").OutOfMemoryError):
                return None
            raise
        finally:
            memory.release()

    return probe
