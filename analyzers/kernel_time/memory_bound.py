"""Time of kernels that move memory: pointwise, copy, gather, norm, softmax, reduction, optimizer."""

from collections.abc import Mapping

from analyzers.costs.call import Cost
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine


def memory_seconds(cost: Cost, gpu: GPU, machine: Machine, fit: Mapping[str, float], l2: Mapping[str, float]) -> float:
    """Seconds of one kernel: a start, then its bytes at the copy rate; activations still in the L2 are faster."""
    cached = _resident_bytes(cost, gpu.l2_bytes, l2["share"]) if fit["cached"] else 0.0
    l2_rate = max(machine.l2_bandwidth * l2["rate"], machine.bandwidth)
    seconds = (cost.bytes - cached) / (machine.bandwidth * fit["rate"]) + cached / l2_rate
    return fit["start_us"] * 1e-6 + seconds


def _resident_bytes(cost: Cost, l2_bytes: int, share: float) -> float:
    """What of the kernel's bytes the L2 holds: a stream longer than the L2 evicts what it would have found there."""
    evicted = max(0.0, cost.bytes / l2_bytes - 1)
    return min(cost.bytes - cost.weight_bytes, share * l2_bytes * max(0.0, 1 - evicted))
