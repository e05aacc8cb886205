"""Alternating blocks, and the interval of their median."""

import time
from contextlib import nullcontext
from math import comb

import pytest

from tracekit.analyzers.trace import Latency
from tracekit.capture import HostClock
from tracekit.measure import interleaved
from tracekit.measure.interleaved import BLOCKS, FEWEST_BLOCKS, Runnable, compare, median_interval, noise


class Clock:
    """A clock that adds up the durations that the steps state."""

    def __init__(self) -> None:
        self.now = 0.0

    def mark(self) -> float:
        return self.now

    def microseconds(self, first: float, last: float) -> float:
        return last - first

    def synchronize(self) -> None: ...


@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_interval_holds_the_median_with_95_percent(n):
    bounds = median_interval(list(range(n)))
    low = int(bounds.low)
    outside = 2 * sum(comb(n, k) for k in range(low + 1)) / 2**n
    wider = 2 * sum(comb(n, k) for k in range(low + 2)) / 2**n
    assert outside <= 0.05 < wider
    assert bounds.high == n - 1 - low
    assert bounds.expected == (n - 1) / 2


def test_few_values_give_all_of_their_range():
    bounds = median_interval([3.0, 1.0, 2.0])
    assert (bounds.low, bounds.expected, bounds.high) == (1.0, 2.0, 3.0)


def test_a_drift_cancels():
    clock, slower = Clock(), [1.0]

    def step(us: float):
        def run(_) -> None:
            slower[0] *= 1.001
            clock.now += us * slower[0]

        return Runnable(run, nullcontext)

    comparison = compare(step(300.0), step(100.0), clock, budget_s=0.01)
    assert len(comparison.blocks_us) == BLOCKS
    assert comparison.speedup.expected == pytest.approx(3.0, rel=0.03)
    assert comparison.speedup.low <= comparison.speedup.expected <= comparison.speedup.high


class Watch(Clock):
    """A wall clock, without the warning about a busy CPU."""

    def mark(self) -> float:
        return 1e6 * time.perf_counter()


def sleeping(seconds: float) -> Runnable:
    return Runnable(lambda _: time.sleep(seconds), nullcontext)


def test_slow_steps_are_timed_in_fewer_blocks_and_it_is_said():
    comparison = compare(sleeping(0.02), sleeping(0.01), Watch(), wall_s=0.2)
    assert FEWEST_BLOCKS <= len(comparison.blocks_us) < BLOCKS
    (few,) = comparison.warnings
    assert f"{len(comparison.blocks_us)} blocks were timed instead of 10" in few


@pytest.mark.parametrize(("wall_s", "sure"), [(0.001, "75 % confidence"), (0.07, "confidence")])
def test_few_blocks_hold_the_median_with_less_confidence(wall_s, sure):
    comparison = compare(sleeping(0.006), sleeping(0.006), Watch(), wall_s=wall_s)
    assert sure in comparison.warnings[0]


def test_quick_steps_are_timed_in_all_blocks():
    comparison = compare(sleeping(0.0), sleeping(0.0), Watch(), budget_s=0.01)
    assert len(comparison.blocks_us) == BLOCKS and not comparison.warnings


def test_a_slow_first_step_alone_does_not_take_blocks_away():
    slow = [0.3]
    first = Runnable(lambda _: time.sleep(slow.pop() if slow else 0.0), nullcontext)
    assert len(compare(first, sleeping(0.0), Watch(), budget_s=0.01, wall_s=1.0).blocks_us) == BLOCKS


@pytest.mark.parametrize(("computing", "busy"), [(0.5, True), (1.0, False), (1.9, False)])
def test_a_busy_machine_is_said_of_times_of_the_cpu(monkeypatch, computing, busy):
    """The process has computed for half of the wall time, for all of it, or in two threads."""
    began = time.perf_counter()
    monkeypatch.setattr(interleaved.time, "process_time", lambda: computing * (time.perf_counter() - began))
    comparison = compare(sleeping(0.0), sleeping(0.0), HostClock(), budget_s=0.01)
    said = [line for line in comparison.warnings if line.startswith("The CPU was busy with other work")]
    assert bool(said) == busy
    assert not compare(sleeping(0.0), sleeping(0.0), Watch(), budget_s=0.01).warnings


def test_noise_is_said():
    assert noise(Latency(100.0, 99.0, 101.0, 10)) == ""
    assert "±25 %" in noise(Latency(100.0, 75.0, 125.0, 10))
