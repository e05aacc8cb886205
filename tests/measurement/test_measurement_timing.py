"""Blocks in turn, and the interval of their median."""

from contextlib import nullcontext
from math import comb

import pytest

from tracekit.analyzers.capture_info import Latency
from tracekit.measurement.interleaved import BLOCKS, Runnable, compare, median_interval, noise


class Clock:
    """Counts what the steps say that they take."""

    def __init__(self) -> None:
        self.now = 0.0

    def mark(self) -> float:
        return self.now

    def microseconds(self, first: float, last: float) -> float:
        return last - first

    def synchronize(self) -> None: ...


@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_interval_holds_the_median_with_95_percent(n):
    found = median_interval(list(range(n)))
    low = int(found.low)
    outside = 2 * sum(comb(n, k) for k in range(low + 1)) / 2**n
    wider = 2 * sum(comb(n, k) for k in range(low + 2)) / 2**n
    assert outside <= 0.05 < wider
    assert found.high == n - 1 - low
    assert found.expected == (n - 1) / 2


def test_few_values_give_all_of_their_range():
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.low, found.expected, found.high) == (1.0, 2.0, 3.0)


def test_a_drift_cancels():
    clock, slower = Clock(), [1.0]

    def step(us: float):
        def run(_) -> None:
            slower[0] *= 1.001
            clock.now += us * slower[0]

        return Runnable(run, nullcontext)

    found = compare(step(300.0), step(100.0), clock, budget_s=0.01)
    assert len(found.blocks_us) == BLOCKS
    assert found.speedup.expected == pytest.approx(3.0, rel=0.03)
    assert found.speedup.low <= found.speedup.expected <= found.speedup.high


def test_noise_is_said():
    assert noise(Latency(100.0, 99.0, 101.0, 10)) == ""
    assert "±25 %" in noise(Latency(100.0, 75.0, 125.0, 10))
