"""Time of kernels that move memory: pointwise, copy, gather, norm, softmax, reduction, optimizer."""

from collections.abc import Mapping

from analyzers.costs.call import Cost
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine


def memory_seconds(cost: Cost, gpu: GPU, machine: Machine, fit: Mapping[str, float], l2: Mapping[str, float]) -> float:
    """Seconds of one kernel: a start, then bytes at the copy rate; what the L2 still holds of activations is faster."""
    moved = cost.read_bytes * fit["passes"] + cost.write_bytes
    resident = min(moved - min(cost.weight_bytes, moved), l2["share"] * gpu.l2_bytes)
    l2_rate = max(machine.l2_bandwidth * l2["rate"], machine.bandwidth)
    seconds = (moved - resident) / (machine.bandwidth * fit["rate"]) + resident / l2_rate
    return fit["start_us"] * 1e-6 + seconds
