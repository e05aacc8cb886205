"""Times a slow and a fixed script in turn."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

Wait = Callable[[], None]
"""Waits until the device is idle."""

_MOST_STEPS = 40


class Variant:
    """A running script, and the seconds of its steps."""

    def __init__(self, steps: Iterator[int], wait: Wait, warm_up: int, round_s: float) -> None:
        self.steps, self._wait = steps, wait
        self.items = [self.advance(1)[1] for _ in range(warm_up)][-1]
        self._a_round = max(1, min(_MOST_STEPS, int(round_s / max(self.advance(1)[0], 1e-6))))
        self.times: list[float] = []

    def advance(self, count: int) -> tuple[float, int]:
        """Return the seconds per step and the items per step of `count` steps."""
        self._wait()
        begin = time.perf_counter()
        items = sum(next(self.steps) for _ in range(count))
        self._wait()
        return (time.perf_counter() - begin) / count, items // count

    def time_a_round(self) -> None:
        """Time a round after an untimed step, because the other variant used the allocator and the caches before."""
        if self._a_round > 1:
            self.advance(1)
        self.times.append(self.advance(self._a_round)[0])

    def row(self) -> dict[str, Any]:
        spread = quartiles([1e3 * time for time in self.times])
        return {"step_ms": spread, "items": self.items, "rounds": len(self.times), "steps_a_round": self._a_round}


def time_in_turn(slow: Variant, fixed: Variant, rounds: int, budget_s: float) -> None:
    """Time both scripts in turn: at least three rounds each, and more until the budget is used up."""
    begin = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - begin > budget_s:
            return
        slow.time_a_round()
        fixed.time_a_round()


def gain(slow: Variant, fixed: Variant) -> dict[str, float]:
    """Return the speed-up per item over consecutive rounds."""
    each = fixed.items / slow.items
    return quartiles([each * before / after for before, after in zip(slow.times, fixed.times, strict=True)])


def quartiles(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(middle, 4), "q1": round(low, 4), "q3": round(high, 4)}
