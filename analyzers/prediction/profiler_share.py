"""Estimates the fraction of a trace's host time that the profiler took."""

from collections.abc import Mapping

from tracekit.analyzers.interval import Interval

SHARE = Interval(0.45, 0.58, 0.68)
"""Share of torch.profiler in the host time of eager code with all ops and shapes recorded. On hosts of an H200: 0.54 to
0.68 in ten of our runs (0.80 in one), 0.56 in one of others."""
EAGER_OP_US = 10.0
"""Host time per recorded op, including the profiler's, in those runs: 8.5 to 14.7 µs."""
_SLOWEST = 2.5
"""Factor on the host time per op of a slow host. Host time beyond it does not come from dispatching ops."""
TRACED_CALL_US = Interval(0.3, 1.0, 2.5)
"""Time in µs that Nsight Systems takes to record a CUDA API call."""


def profiler_share(host_ns: float, recorded: Mapping[str, int], format_: str) -> Interval:
    """Return the fraction (0 to 1) of a step's host time that recording took. `recorded` maps category -> host rows of
    the step."""
    if host_ns <= 0:
        return Interval(0.0, 0.0, 0.0)
    if format_ == "nsys":
        calls = recorded.get("runtime", 0) * 1e3 / host_ns
        return Interval(*(min(us * calls, SHARE.high) for us in _ends(TRACED_CALL_US)))
    dispatching = min(1.0, recorded.get("op", 0) * EAGER_OP_US * _SLOWEST * 1e3 / host_ns)
    return Interval(*(share * dispatching for share in _ends(SHARE)))


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.expected, interval.high
