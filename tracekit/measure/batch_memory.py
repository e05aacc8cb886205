"""Measures the peak memory of a configuration at different batch sizes, alone on the device (in the worker)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tracekit.analyzers.core import InputError
from tracekit.apply import Subject, optimizer_of
from tracekit.measure import bench_worker, device_state
from tracekit.measure.bench_worker import Request
from tracekit.measure.side_by_side import ready, warm
from tracekit.run import require

_CACHE: dict[Request, tuple[Subject, Any]] = {}
"""The last run, and in training its optimizer with its state. It has neither compiled code nor CUDA graphs, because the
peak memory is about the same with them."""


def capacity() -> int:
    """Return the free device memory in bytes, after this process has released its own."""
    bench_worker.release()
    release()
    return int(require("torch.cuda").mem_get_info()[0])


def release() -> None:
    _CACHE.clear()
    device_state.release()


def peak_bytes(request: Request, batch: int) -> int | None:
    """Return the peak memory of a step at this batch size in bytes; None if it does not fit."""
    try:
        subject, optimizer = _run(request)
        resized = replace(subject, settings=replace(subject.settings, batch_size=batch))
        return ready(resized, optimizer).peak_memory_bytes()
    except InputError as error:
        if isinstance(error.__cause__, require("torch.cuda").OutOfMemoryError):
            return None
        raise
    finally:
        for subject, _ in _CACHE.values():
            subject.model.zero_grad()  # A step that did not fit leaves gradients.
        device_state.release()


def _run(request: Request) -> tuple[Subject, Any]:
    if request not in _CACHE:
        _CACHE.clear()
        changed = bench_worker.changed(bench_worker.built(request.settings), request)
        subject = replace(changed, compile_mode="", graphs=False)
        optimizer = optimizer_of(subject, subject.model) if subject.training else None
        warm(subject, optimizer)
        _CACHE[request] = subject, optimizer
    return _CACHE[request]


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
