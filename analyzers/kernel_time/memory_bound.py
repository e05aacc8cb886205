"""Time of kernels that move memory: pointwise, copy, gather, norm, softmax, reduction, optimizer.

After a start, the slowest of three: the bytes, at the rate of memory or the L2; the elements, which a multiprocessor
takes one at a time where it cannot take vectors; one row, whose values follow each other within a thread.
"""

from collections.abc import Mapping
from typing import Any

from analyzers.costs.call import ELEMENT_BYTES, Cost
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine

_THREADS = 512
"""Of a block that reduces rows; shared by up to 16 rows, a warp each, until a row has 256 values a thread."""
_WARP = 32
_VALUES_A_THREAD = 256
_GRID = _THREADS * _VALUES_A_THREAD
_COLUMN_THREADS = 16
"""Of a block that reduces columns, along a column; with more than 512 values it is split."""
_CHUNK = 1 << 16
"""Elements of a list that one block goes through."""
_SCALAR = 8
_NORM_THREADS = 128
"""Of a block, one for each row."""
_MEAN_FLOPS = 6
"""An element, from which on a norm subtracts a mean; those without one need fewer passes."""
_LONG_SOFTMAX = 2048
"""Longer rows of a softmax have a block each."""


def memory_seconds(cost: Cost, gpu: GPU, machine: Machine, families: Mapping[str, Any]) -> float:
    """Seconds of one op's kernels."""
    fit = families.get(kind(cost), families["other"])
    elements, rows = _elements(cost), _rows(cost)
    share = elements / machine.sms
    if cost.family == "optimizer":
        share = max(share, min(elements, _CHUNK))
    busy = (share * fit.get("cycles", 0.0) + rows / machine.sms * fit.get("row_cycles", 0.0)) / machine.clock_hz
    one_row = _values_a_thread(cost, rows) * fit.get("value_ns", 0.0) * 1e-9
    start = fit["start_us"] + (fit["split_us"] if _fills_a_grid(cost) else 0.0)
    return start * 1e-6 + max(_stream_seconds(cost, gpu, machine, fit, families["l2"]), busy, one_row)


def kind(cost: Cost) -> str:
    """The section of constants.toml for a cost."""
    if cost.family == "softmax":
        return "softmax-backward" if not cost.row else "softmax-long" if cost.row > _LONG_SOFTMAX else "softmax"
    if cost.family == "norm" and cost.access == "linear":
        without_mean = 0 < cost.flops < _MEAN_FLOPS * cost.row * _rows(cost)
        return "norm-rms" if without_mean else "norm"
    if cost.access == "linear":
        if cost.family == "loss" and cost.write_bytes > _SCALAR:
            return "loss-backward"
        return "fill" if cost.family == "copy" and not cost.read_bytes else cost.family
    return "norm-columns" if cost.family == "norm" else cost.access


def _elements(cost: Cost) -> float:
    """Of the result; of what a reduction reads."""
    return max(cost.read_bytes if cost.row else 0, cost.write_bytes) / ELEMENT_BYTES[cost.precision]


def _rows(cost: Cost) -> float:
    return _elements(cost) / cost.row if cost.row else 0.0


def _values_a_thread(cost: Cost, rows: float) -> float:
    """How many values of one row follow each other in a thread."""
    if cost.access == "columns":
        return min(cost.row, _THREADS) / _COLUMN_THREADS
    if _fills_a_grid(cost):
        return 0.0
    if cost.family == "norm":
        return cost.row / _NORM_THREADS
    if cost.row >= _WARP * _VALUES_A_THREAD:
        return cost.row / _THREADS
    return cost.row / max(_WARP, _THREADS / max(1.0, rows))


def _fills_a_grid(cost: Cost) -> bool:
    """Whether a reduction's row is so long that it is split over blocks."""
    return cost.row >= _GRID and cost.access in ("rows", "search")


def _stream_seconds(cost: Cost, gpu: GPU, machine: Machine, fit: Mapping[str, Any], l2: Mapping[str, float]) -> float:
    cached = _resident_bytes(cost, gpu.l2_bytes, l2) if fit.get("cached", True) else 0.0
    l2_rate = max(machine.l2_bandwidth * l2["rate"], machine.bandwidth)
    return (cost.bytes - cached) / (machine.bandwidth * fit["rate"]) + cached / l2_rate


def _resident_bytes(cost: Cost, l2_bytes: int, l2: Mapping[str, float]) -> float:
    """What of the kernel's bytes the L2 holds: a stream longer than it evicts what it would have found there."""
    share = l2["share"] * l2_bytes
    evicted = max(0.0, (cost.bytes / share - 1) / l2["fade"])
    return min(cost.bytes - cost.weight_bytes, share * max(0.0, 1 - evicted))
