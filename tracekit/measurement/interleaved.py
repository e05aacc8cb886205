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
from tracekit.capture.latency import WARM_UP_STEPS, Clock, HostClock, summarize
from tracekit.capture.progress import Say, silent
from tracekit.capture.workloads import Step
from tracekit.measurement.pace import CpuShare, Progress

BLOCKS = 10
BUDGET_S = 3.0
"""For all blocks of both steps, warm-up aside."""
WALL_S = 120.0
"""Wall time that a comparison may take before it makes do with fewer blocks."""
FEWEST_BLOCKS = 3
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
    warnings: tuple[str, ...] = ()
    """What speaks against the measurement, as sentences."""


def compare(
    before: Runnable,
    after: Runnable,
    clock: Clock,
    budget_s: float = BUDGET_S,
    *,
    wall_s: float = WALL_S,
    say: Say = silent,
) -> Compared:
    """Time both, warm, in alternating blocks. Which one is first alternates, too.

    Steps of which a full measurement takes longer than `wall_s` are timed in fewer blocks, down to FEWEST_BLOCKS.
    """
    samples: tuple[list[list[float]], list[list[float]]] = ([], [])
    sides, cpu = (before, after), CpuShare()
    plan = _plan(sides, clock, budget_s, wall_s, say)
    for block in range(plan.blocks):
        for side in (0, 1) if block % 2 == 0 else (1, 0):
            samples[side].append(timed_block(sides[side], clock, plan.counts[side], plan.progress))
    medians = tuple((statistics.median(a), statistics.median(b)) for a, b in zip(*samples, strict=True))
    return Compared(
        before=summarize([us for block in samples[0] for us in block]),
        after=summarize([us for block in samples[1] for us in block]),
        speedup=median_interval([a / b for a, b in medians]),
        blocks_us=medians,
        warnings=_warnings(plan, cpu.warning() if isinstance(clock, HostClock) else ""),
    )


@dataclass(frozen=True)
class _Plan:
    blocks: int
    counts: tuple[int, int]
    """Samples of a block, before and after."""
    progress: Progress


def _plan(sides: tuple[Runnable, Runnable], clock: Clock, budget_s: float, wall_s: float, say: Say) -> _Plan:
    """Warm up, and say how many blocks and samples there is time for."""
    progress = Progress(2 * (BLOCKS + WARM_UP_STEPS + 1), say)
    first = [_seconds(side, clock, progress) for side in sides]
    slow = _too_slow(first, wall_s)
    if slow:  # unless it was the first step alone, as when something is compiled in it
        first = [_seconds(side, clock, progress) for side in sides]
        slow = _too_slow(first, wall_s)
    if slow:
        progress.of(2 * (2 + _affordable(wall_s, sum(first))))
    else:
        for side in sides:
            timed_block(side, clock, WARM_UP_STEPS - 1, progress)
    took = first if slow else [_seconds(side, clock, progress) for side in sides]
    blocks = _affordable(wall_s, sum(first)) if slow else BLOCKS
    counts = [max(1, min(20, int(budget_s / (2 * BLOCKS) / max(each, 1e-9)))) for each in took]
    if not slow:
        progress.of(2 * (WARM_UP_STEPS + 1) + blocks * sum(counts))
    return _Plan(blocks, (counts[0], counts[1]), progress)


def _too_slow(seconds: list[float], wall_s: float) -> bool:
    return sum(seconds) * (BLOCKS + WARM_UP_STEPS + 1) > wall_s


def _affordable(wall_s: float, pair_s: float) -> int:
    """Blocks of one step a side that fit into what two pairs of steps left of the time."""
    return max(FEWEST_BLOCKS, min(BLOCKS, int(wall_s / pair_s) - 2))


def _seconds(side: Runnable, clock: Clock, progress: Progress) -> float:
    start = time.perf_counter()
    timed_block(side, clock, 1, progress)
    return time.perf_counter() - start


def _warnings(plan: _Plan, busy: str) -> tuple[str, ...]:
    few = ""
    if plan.blocks < BLOCKS:
        held = 1 - 2 / 2**plan.blocks
        sure = "" if held > CONFIDENCE else f": the interval holds the true median with {held:.0%} confidence"
        few = f"Steps are slow: {plan.blocks} blocks were timed instead of {BLOCKS}{sure}.".replace("%", " %")
    return tuple(filter(None, (few, busy)))


def timed_block(side: Runnable, clock: Clock, count: int, progress: Progress) -> list[float]:
    """Latencies in µs of single runs: the device is idle when each starts and done before the next."""
    samples, emitter = [], NoRanges()
    with side.numerics():
        for _ in range(count):
            first = clock.mark()
            side.step(emitter)
            last = clock.mark()
            clock.synchronize()
            samples.append(clock.microseconds(first, last))
            progress.step()
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
