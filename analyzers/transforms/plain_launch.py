"""The host time of a plain launch, without a module call or Python code before it. It is the unit of added host
time."""

from tracekit.analyzers.prediction.baseline import Baseline

PLAIN_NS = 5_400.0
"""Host time of a plain launch on the reference machine of `HostSpeed`: the 25th percentile of launches in twelve
decoding runs on hosts of H200s, divided by the speed of their hosts."""


def plain_launch_ns(base: Baseline) -> float:
    """Return the host time of one more launch on the run's machine, in nanoseconds."""
    return PLAIN_NS * base.host_speed.ratio
