"""Compares the times in the trace with the latency of a step without a profiler."""

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.results import Timeline


def unprofiled_wall_ns(latency: Latency | None, times: Timeline) -> float | None:
    """Return the time of all steps without a profiler in ns; None if it was not measured."""
    return latency.median_us * 1e3 * len(times.steps) if latency else None


def busy_exceeds_it(latency: Latency | None, times: Timeline, devices: int) -> bool:
    """Return whether the busy time in the steps is longer than even slow unprofiled steps (90th percentile) take."""
    if latency is None:
        return False
    return float(times.steps["busy_ns"].sum()) > latency.p90_us * 1e3 * len(times.steps) * devices


def idle_scale(latency: Latency | None, times: Timeline, devices: int) -> float:
    """Return the ratio of idle time without a profiler to that in the trace, 0 to 1; 1 if it was not measured."""
    wall = unprofiled_wall_ns(latency, times)
    idle = float(times.steps["idle_ns"].sum())
    if wall is None or not idle:
        return 1.0
    return min(max(wall * devices - float(times.steps["busy_ns"].sum()), 0.0) / idle, 1.0)
