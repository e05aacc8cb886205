"""Modelled time of an op's kernels on a named GPU."""

from tracekit.analyzers.kernel_time.estimate import estimate_ns

__all__ = ["estimate_ns"]
