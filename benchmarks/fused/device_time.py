"""Device time of functions: the sum of their kernels by CUPTI, and wall time by events."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_CACHE_BYTES = 150e6
"""Bytes of memory that inputs rotate through: three times the largest L2 cache."""
_MOST_SETS = 24


def sets_for(nbytes: int, device: str, most: int = _MOST_SETS) -> int:
    """Return how many sets of inputs of this size fill more than the cache, at most `most`."""
    return 1 if device == "cpu" else max(1, min(most, -(-int(_CACHE_BYTES) // max(nbytes, 1))))


def kernel_us(function: Callable[..., Any], sets: Sequence[tuple[Any, ...]], device: str) -> tuple[float, float]:
    """Return (microseconds, launches) of one call, the sum of its kernels."""
    for inputs in sets[:3]:
        function(*inputs)
    if device == "cpu":
        began = time.perf_counter()
        function(*sets[0])
        return (time.perf_counter() - began) * 1e6, 0
    torch.cuda.synchronize()
    calls = max(12, 2 * len(sets))
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for i in range(calls):
            function(*sets[i % len(sets)])
        torch.cuda.synchronize()
    events = [event for event in recorded.key_averages() if event.self_device_time_total]
    total = sum(event.self_device_time_total for event in events)
    return total / calls, sum(event.count for event in events) / calls


def wall_us(function: Callable[..., Any], sets: Sequence[tuple[Any, ...]], calls: int = 20) -> float:
    """Return microseconds of a call, by events around many of them."""
    function(*sets[0])
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for i in range(calls):
        function(*sets[i % len(sets)])
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def step_ms(step: Callable[[], Any], device: str, steps: int = 12) -> float:
    """Return the median wall time of a step, each waited for."""
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def copy_rate(device: str) -> float:
    """Return bytes per second, read and written, of a copy of a gigabyte: the roof of what moves memory."""
    if device == "cpu":
        return 1e10
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    best = min(wall_us(target.copy_, [(source,)], 10) for _ in range(3))
    return 2 * source.nbytes / best * 1e6
