"""Measures the host time of a call and the device time of work, by repetition."""

import statistics
import time
from collections.abc import Callable

from tracekit.capture.packages import require

Call = Callable[[], object]

CALLS = 200
"""Calls timed together. A device can queue more launches than this, so no call waits for the device."""
REPETITIONS = 15


def host_us(call: Call, synchronize: Call, *, calls: int = CALLS) -> tuple[float, float, float]:
    """Return the host time of one call in microseconds: 10th percentile, median and 90th percentile of repetitions."""
    samples = [_issue_us(call, synchronize, calls) for _ in range(REPETITIONS + 1)][1:]
    deciles = statistics.quantiles(samples, n=10, method="inclusive")
    return deciles[0], statistics.median(samples), deciles[-1]


def _issue_us(call: Call, synchronize: Call, calls: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    took = time.perf_counter_ns() - begin
    synchronize()
    return took / calls / 1e3


def device_s(work: Call, seconds: float) -> float:
    """Return the device time of one run of `work` in seconds.

    It is measured after `work` has run for half of `seconds`, so that power limits have taken effect.
    """
    cuda = require("torch.cuda")
    once = _elapsed_s(cuda, work, 3)
    repeats = max(3, round(seconds / 2 / once))
    _elapsed_s(cuda, work, repeats)
    return _elapsed_s(cuda, work, repeats)


def _elapsed_s(cuda: object, work: Call, repeats: int) -> float:
    first, last = (cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[attr-defined]
    first.record()
    for _ in range(repeats):
        work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / repeats
