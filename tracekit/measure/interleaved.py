"""Times two steps in alternating blocks, so that the machine's drift cancels in the ratio of their latencies."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tracekit.analyzers.core import Interval, progressed
from tracekit.analyzers.trace import Latency
from tracekit.capture import WARM_UP_STEPS, Clock, HostClock, NoRanges, Step, summarize

_STARVED = 1.5
"""Ratio of wall time to the process's CPU time above which it waited for a CPU. On an idle machine it is 1 or less."""


@dataclass
class Progress:
    """Counts the steps of a measurement. Their number is known once the time of one is."""

    total: int
    _done: int = 0

    def step(self) -> None:
        """Count one finished step."""
        self._done += 1
        progressed("timing steps", self._done, self.total)

    def set_total(self, total: int) -> None:
        self.total = total

    def end(self) -> None:
        """Tell that no step follows."""
        progressed("timing steps", self._done, self._done)


class CpuShare:
    """Compares the wall time since its creation with the CPU time of this process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def warning(self) -> str:
        """Return a warning if other work kept the CPU busy, else ""."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if wall < _STARVED * cpu:
            return ""
        return f"The CPU was busy with other work: {wall:.1f} s passed while this process computed for {cpu:.1f} s."


BLOCKS = 10
BUDGET_S = 3.0
"""Seconds for all blocks of both steps, without warm-up."""
WALL_S = 120.0
"""Seconds of wall time that a comparison may take before it uses fewer blocks."""
FEWEST_BLOCKS = 3
CONFIDENCE = 0.95
QUIET = 0.1
"""Relative spread of latencies (half of p90 - p10, over the median) above which the machine counts as busy."""


@dataclass(frozen=True)
class Runnable:
    """A step, and the context manager that sets the precision of its arithmetic."""

    step: Step
    numerics: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class TimedPair:
    """Latencies of two steps that were timed in alternating blocks."""

    before: Latency
    after: Latency
    speedup: Interval
    """Latency before over latency after: the median over the blocks, with its 95 % confidence interval."""
    blocks_us: tuple[tuple[float, float], ...]
    """Median latency in microseconds of each pair of blocks, before and after."""
    warnings: tuple[str, ...] = ()
    """Sentences on why the measurement may be inaccurate."""


def compare(
    before: Runnable,
    after: Runnable,
    clock: Clock,
    budget_s: float = BUDGET_S,
    *,
    wall_s: float = WALL_S,
) -> TimedPair:
    """Time two steps in alternating blocks, after warm-up. The order within a pair of blocks alternates, too.

    If a full measurement would take longer than `wall_s` seconds, fewer blocks are timed, but at least FEWEST_BLOCKS.
    """
    samples: tuple[list[list[float]], list[list[float]]] = ([], [])
    sides, cpu = (before, after), CpuShare()
    plan = _plan(sides, clock, budget_s, wall_s)
    for block in range(plan.blocks):
        for side in (0, 1) if block % 2 == 0 else (1, 0):
            samples[side].append(timed_block(sides[side], clock, plan.counts[side], plan.progress))
    plan.progress.end()
    medians = tuple((statistics.median(a), statistics.median(b)) for a, b in zip(*samples, strict=True))
    return TimedPair(
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
    """Samples per block, before and after."""
    progress: Progress


def _plan(sides: tuple[Runnable, Runnable], clock: Clock, budget_s: float, wall_s: float) -> _Plan:
    """Warm up both steps, and plan as many blocks and samples as there is time for."""
    progress = Progress(2 * (BLOCKS + WARM_UP_STEPS + 1))
    first = [_seconds(side, clock, progress) for side in sides]
    slow = _too_slow(first, wall_s)
    if slow:  # Only the first step may be slow, for example because it compiles.
        first = [_seconds(side, clock, progress) for side in sides]
        slow = _too_slow(first, wall_s)
    if slow:
        progress.set_total(2 * (2 + _affordable(wall_s, sum(first))))
    else:
        for side in sides:
            timed_block(side, clock, WARM_UP_STEPS - 1, progress)
    seconds = first if slow else [_seconds(side, clock, progress) for side in sides]
    blocks = _affordable(wall_s, sum(first)) if slow else BLOCKS
    counts = [max(1, min(20, int(budget_s / (2 * BLOCKS) / max(each, 1e-9)))) for each in seconds]
    if not slow:
        progress.set_total(2 * (WARM_UP_STEPS + 1) + blocks * sum(counts))
    return _Plan(blocks, (counts[0], counts[1]), progress)


def _too_slow(seconds: list[float], wall_s: float) -> bool:
    return sum(seconds) * (BLOCKS + WARM_UP_STEPS + 1) > wall_s


def _affordable(wall_s: float, pair_s: float) -> int:
    """Return how many pairs of one-step blocks still fit into `wall_s`, after two pairs of steps."""
    return max(FEWEST_BLOCKS, min(BLOCKS, int(wall_s / pair_s) - 2))


def _seconds(side: Runnable, clock: Clock, progress: Progress) -> float:
    start = time.perf_counter()
    timed_block(side, clock, 1, progress)
    return time.perf_counter() - start


def _warnings(plan: _Plan, busy: str) -> tuple[str, ...]:
    few = ""
    if plan.blocks < BLOCKS:
        confidence = 1 - 2 / 2**plan.blocks
        sure = "" if confidence > CONFIDENCE else f": the interval has {confidence:.0%} confidence"
        few = f"Steps are slow: {plan.blocks} blocks were timed instead of {BLOCKS}{sure}.".replace("%", " %")
    return tuple(filter(None, (few, busy)))


def timed_block(side: Runnable, clock: Clock, count: int, progress: Progress) -> list[float]:
    """Time `count` runs one by one; the device is idle when each starts. Returns latencies in microseconds."""
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
    """Return a warning if the latencies spread widely, else ""."""
    spread = max((each.p90_us - each.p10_us) / 2 / each.median_us for each in latencies)
    return f"Latencies spread by ±{spread:.0%}: the machine was busy.".replace("%", " %") if spread > QUIET else ""


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median with its 95 % confidence interval, which order statistics bound (sign test)."""
    ordered, n = sorted(values), len(values)
    outside, rank = 0.0, 0
    while (outside := outside + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE and rank < (n - 1) // 2:
        rank += 1
    low = max(rank - 1, 0)
    return Interval(ordered[low], statistics.median(ordered), ordered[n - 1 - low])
