"""Time of memory-bound kernels: pointwise, copy, gather, norm, softmax, reduction, optimizer.

The time is a start, the sequential work of one thread, and the slower of two: moving the bytes at the rate of memory or
the L2, and the instructions of a multiprocessor, which processes elements one at a time where it cannot use vectors.
If a block alternates between reading, reducing and writing, the p-norm of both replaces the maximum.
"""

from collections.abc import Mapping
from typing import Any

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.hardware.sm_limits import sm_limits
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.kernel_kinds import elements, kind, rows
from tracekit.analyzers.kernel_time.thread_time import WARP, overlapped_seconds, thread_seconds

_BLOCK_ROW = 8192
"""Row length from which a whole block reduces a row and combines its warps in shared memory."""


def memory_seconds(cost: Cost, gpu: GPU, machine: Machine, families: Mapping[str, Any]) -> float:
    """Return the seconds of one op's kernels."""
    name = kind(cost)
    fit = families.get(name, families["other"])
    start = (fit["start_us"] + gpu.kernel_start_us) * 1e-6 + thread_seconds(cost, name, machine, fit)
    streamed = _stream_seconds(cost, gpu, machine, fit, families["l2"])
    busy = max(_busy_seconds(cost, machine, fit), overlapped_seconds(cost, name, machine, fit))
    p = fit.get("overlap")
    return start + (float((streamed**p + busy**p) ** (1 / p)) if p else max(streamed, busy))


def _busy_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the seconds of instructions on a multiprocessor: per element, byte, FLOP and row."""
    of_a_row = fit.get("block_cycles" if cost.row >= _BLOCK_ROW else "row_cycles", fit.get("row_cycles", 0.0))
    cycles = elements(cost) * fit.get("cycles", 0.0) + rows(cost) * of_a_row
    cycles += cost.bytes * fit.get("byte_cycles", 0.0) + cost.flops * fit.get("flop_cycles", 0.0)
    return float(cycles / machine.sms / machine.clock_hz)


def _stream_seconds(cost: Cost, gpu: GPU, machine: Machine, fit: Mapping[str, Any], l2: Mapping[str, float]) -> float:
    cached = _resident_bytes(cost, gpu.l2_bytes, l2) if fit.get("cached", True) else 0.0
    l2_rate = max(machine.l2_bandwidth * l2["rate"], machine.bandwidth)
    again = _read_again(cost, gpu, fit) if "threads" in fit else 0.0
    return (cost.bytes + again - cached) / (machine.bandwidth * fit.get("rate", 1.0)) + cached / l2_rate


def _read_again(cost: Cost, gpu: GPU, fit: Mapping[str, Any]) -> float:
    """Return the bytes that later passes over a row read from memory again, because the active rows exceed the L2."""
    blocks = sm_limits(gpu).warps * WARP // fit["threads"]
    row_bytes = cost.read_bytes / max(1.0, rows(cost))
    working_set = min(rows(cost), blocks * gpu.sms) * row_bytes
    missed = min(1.0, max(0.0, working_set / gpu.l2_bytes / fit["fits"] - 1))
    return fit["passes"] * missed * cost.read_bytes


def _resident_bytes(cost: Cost, l2_bytes: int, l2: Mapping[str, float]) -> float:
    """Return the bytes of the kernel that the L2 holds. A stream longer than the L2 evicts its own lines before they
    are read again."""
    share = l2["share"] * l2_bytes
    evicted = max(0.0, (cost.bytes / share - 1) / l2["fade"])
    return min(cost.bytes - cost.weight_bytes, share * max(0.0, 1 - evicted))
