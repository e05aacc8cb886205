"""Two steps timed beside each other: block by block in turn, so that drift of the machine cancels in their ratio."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.interval import Interval
from tracekit.capture.annotate import NoRanges
from tracekit.capture.latency import WARM_UP_STEPS, Clock, summarize
from tracekit.capture.workloads import Step

BLOCKS = 10
BUDGET_S = 3.0
"""For all blocks of both steps, warm-up aside."""
CONFIDENCE = 0.95
QUIET = 0.1
"""Half the range from the 10th to the 90th percentile, over the median; of a quiet machine, it is less."""


@dataclass(frozen=True)
class Runnable:
    """A step, and the arithmetic that it runs with."""

    step: Step
    numerics: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Compared:
    before: Latency
    after: Latency
    speedup: Interval
    """Latency before over after: median over the blocks, and an interval that holds it with 95 % confidence."""
    blocks_us: tuple[tuple[float, float], ...]
    """Median latency of each block before and after."""


def compare(before: Runnable, after: Runnable, clock: Clock, budget_s: float = BUDGET_S) -> Compared:
    """Time both, warm, in alternating blocks. Which one is first alternates, too."""
    samples: tuple[list[list[float]], list[list[float]]] = ([], [])
    sides = (before, after)
    counts = [_count(side, clock, budget_s) for side in sides]
    for block in range(BLOCKS):
        for side in (0, 1) if block % 2 == 0 else (1, 0):
            samples[side].append(timed_block(sides[side], clock, counts[side]))
    medians = tuple((statistics.median(a), statistics.median(b)) for a, b in zip(*samples, strict=True))
    return Compared(
        before=summarize([us for block in samples[0] for us in block]),
        after=summarize([us for block in samples[1] for us in block]),
        speedup=median_interval([a / b for a, b in medians]),
        blocks_us=medians,
    )


def _count(side: Runnable, clock: Clock, budget_s: float) -> int:
    """Warm up, and say how many samples a block has time for."""
    timed_block(side, clock, WARM_UP_STEPS)
    start = time.perf_counter()
    timed_block(side, clock, 1)
    took = time.perf_counter() - start
    return max(1, min(20, int(budget_s / (2 * BLOCKS) / took)))


def timed_block(side: Runnable, clock: Clock, count: int) -> list[float]:
    """Latencies in µs of single runs: the device is idle when each starts and done before the next."""
    samples, emitter = [], NoRanges()
    with side.numerics():
        for _ in range(count):
            first = clock.mark()
            side.step(emitter)
            last = clock.mark()
            clock.synchronize()
            samples.append(clock.microseconds(first, last))
    return samples


def noise(*latencies: Latency) -> str:
    """What the widest spread of latencies says against them; "": nothing."""
    spread = max((each.p90_us - each.p10_us) / 2 / each.median_us for each in latencies)
    return f"Latencies spread by ±{spread:.0%}: the machine was not quiet.".replace("%", " %") if spread > QUIET else ""


def median_interval(values: Sequence[float]) -> Interval:
    """The median, between the order statistics that hold the true one with 95 % confidence (sign test)."""
    ordered, n = sorted(values), len(values)
    outside, rank = 0.0, 0
    while (outside := outside + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE and rank < (n - 1) // 2:
        rank += 1
    low = max(rank - 1, 0)
    return Interval(ordered[low], statistics.median(ordered), ordered[n - 1 - low])
