"""Times steps without a profiler, each from its call until the device has finished."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

_ROUND_S = 0.1
_FEWEST, _MOST = 3, 40
WARM_UP = 5

Action = Callable[[], Any]


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm_up(step: Any, count: int = WARM_UP) -> None:
    step.restart()
    for _ in range(count):
        step()
        wait()


def a_round(step: Any, count: int) -> list[float]:
    """Return the milliseconds of each of `count` steps. The step before is not timed, because its caches are cold."""
    step.restart()
    times = []
    for _ in range(count + 1):
        begin = time.perf_counter()
        step()
        wait()
        times.append(1e3 * (time.perf_counter() - begin))
    return times[1:]


def steps_a_round(step: Any) -> int:
    return max(_FEWEST, min(_MOST, int(1e3 * _ROUND_S / statistics.median(a_round(step, _FEWEST)))))


def timed(step: Any, rounds: int) -> dict[str, Any]:
    count = steps_a_round(step)
    return spread([each for _ in range(rounds) for each in a_round(step, count)])


def timed_in_turn(before: Any, after: Any, rounds: int) -> tuple[list[list[float]], list[list[float]]]:
    """Time both in alternating rounds."""
    counts = steps_a_round(before), steps_a_round(after)
    pairs = [(a_round(before, counts[0]), a_round(after, counts[1])) for _ in range(rounds)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def gain(before: list[list[float]], after: list[list[float]], work: float) -> dict[str, Any]:
    """Return the speed-up per unit of work as quartiles over consecutive rounds."""
    median = statistics.median
    return spread([work * median(one) / median(other) for one, other in zip(before, after, strict=True)])


def spread(values: list[float]) -> dict[str, Any]:
    q1, middle, q3 = statistics.quantiles(values, n=4, method="inclusive")
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    figures = {"median": middle, "q1": q1, "q3": q3, "p10": tenths[0], "p90": tenths[-1]}
    return {name: round(value, 4) for name, value in figures.items()} | {"samples": len(values)}
