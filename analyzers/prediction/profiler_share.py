"""How much of the host time in a trace is the profiler's: estimated from what it recorded."""

from collections.abc import Mapping

from tracekit.analyzers.interval import Interval

SHARE = Interval(0.45, 0.58, 0.68)
"""Of torch.profiler, in the host time of eager code with all ops and their shapes recorded. Measured on hosts of an
H200: 0.54 to 0.68 in ten runs of ours (0.80 in one), 0.56 in one of others."""
EAGER_OP_US = 10.0
"""Host time a recorded op, the profiler's included, in those runs: 8.5 to 14.7 us."""
_SLOWEST = 2.5
"""How much more an op may take on a slow host; what a step takes beyond that is no dispatching of ops."""
TRACED_CALL_US = Interval(0.3, 1.0, 2.5)
"""What Nsight Systems takes to record a call of the CUDA API."""


def profiler_share(host_ns: float, recorded: Mapping[str, int], format_: str) -> Interval:
    """Part of a step's host time (0 to 1) that recording it took. `recorded`: category -> host rows of the step."""
    if host_ns <= 0:
        return Interval(0.0, 0.0, 0.0)
    if format_ == "nsys":
        calls = recorded.get("runtime", 0) * 1e3 / host_ns
        return Interval(*(min(us * calls, SHARE.high) for us in _ends(TRACED_CALL_US)))
    dispatching = min(1.0, recorded.get("op", 0) * EAGER_OP_US * _SLOWEST * 1e3 / host_ns)
    return Interval(*(share * dispatching for share in _ends(SHARE)))


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.expected, interval.high
