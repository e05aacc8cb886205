"""Time of a group norm's kernels: statistics with one block per group, the factors that follow from them, and all
elements."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.memory_bound import memory_seconds


def group_norm_seconds(cost: Cost, gpu: GPU, machine: Machine, families: Mapping[str, Any]) -> float:
    """Return the seconds of all kernels. The gradients have sums of each channel instead of statistics of each
    group."""
    statistics = replace(cost, flops=0, write_bytes=0, family="reduction", access="moments", work=None)
    applied = replace(cost, flops=0, family="pointwise", access="indexed", row=0, work=None)
    factors = (families["rows"]["start_us"] + gpu.kernel_start_us) * 1e-6
    return factors + sum(memory_seconds(each, gpu, machine, families) for each in (statistics, applied))
