"""Time of memory-bound kernels: pointwise, copy, gather, norm, softmax, reduction, optimizer.

The time is a start, the sequential work of one thread, and the slower of two: moving the bytes at the rate of memory or
the L2, and the instructions of a multiprocessor, which processes elements one at a time where it cannot use vectors.
If a block alternates between reading, reducing and writing, the p-norm of both replaces the maximum.
"""

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.hardware.data_sheet import sm_limits
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Norm
from tracekit.analyzers.cost.time.gemm import Machine
from tracekit.analyzers.cost.time.kernel_kinds import elements, kind, rows

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


WARP = 32
_THREADS = 512
"""Threads of a block that reduces rows. Up to 16 rows share a block, one warp each, until a row has 256 values per
thread."""
_MOST_VALUES = 256
"""Values of a row that one thread reduces before the row is split over blocks."""
_GRID = _THREADS * _MOST_VALUES
_NORM_THREADS = 128
_SOFTMAX_THREADS = 1024
"""Threads of a softmax block, which takes one row."""
_COLUMN_THREADS = 16
"""Threads along a column of a block that reduces columns."""
_COLUMNS = 128
"""Columns of such a block: 32 threads with 4 columns each."""
_FEWEST_VALUES = 16
"""Values of a column that one thread reduces before the column is split over blocks."""
_BLOCKS = 4
"""Blocks of 512 threads on one multiprocessor."""
_RESIDENT_THREADS = 2048
"""Threads that a multiprocessor holds."""
_CHUNK = 1 << 16
"""Elements of a list that one block processes."""
_GATHER_THREADS, _GATHER_VALUES = 128, 8


def thread_seconds(cost: Cost, kind: str, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the seconds that one thread spends on its values, plus those for combining the parts of a split row or
    column."""
    if kind == "columns":
        return (_column(cost, machine)[1] - 1) * fit["part_ns"] * 1e-9
    if kind == "moments" or (isinstance(cost.work, Norm) and cost.work.channels):
        return 0.0
    joined = fit["split_us"] * 1e-6 if "split_us" in fit and cost.row >= _GRID else 0.0
    value_ns = fit.get("value_ns", 0.0) + fit.get("value_byte_ns", 0.0) * ELEMENT_BYTES[cost.precision]
    steps = fit.get("flop_ns", 0.0) * cost.flops / max(1.0, elements(cost))
    return (_values_a_thread(cost, kind) * value_ns + steps) * 1e-9 + joined


def overlapped_seconds(cost: Cost, kind: str, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the seconds of a thread's work that other blocks' memory traffic hides: a split column, a scan, a chunk of
    a list, or the channel of a block."""
    if isinstance(cost.work, Norm) and cost.work.channels:
        return elements(cost) / cost.work.channels * fit["value_ns"] * 1e-9
    if kind == "moments":
        return cost.row * float(fit["value_ns"]) * 1e-9
    if kind == "columns":
        return _column(cost, machine)[0] * fit["value_ns"] * 1e-9
    if kind == "scan-columns":
        return _column_scan_seconds(cost, machine, fit)
    if kind == "scan":
        return _scan_seconds(cost, machine, fit)
    if kind == "optimizer":
        return _list_seconds(cost, machine, fit)
    return 0.0


def _list_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the longer of two: the time of all vectors of four elements over all multiprocessors, or that of one
    block's chunk of each list."""
    count = max(1.0, elements(cost))
    streams = round(cost.bytes / count / ELEMENT_BYTES[cost.precision])
    alone = fit["chunk_byte_cycles"] * ELEMENT_BYTES[cost.precision]
    vectors = max(count / machine.sms * fit["vector_cycles"], min(count, _CHUNK) * alone)
    return streams * vectors / machine.clock_hz


def _values_a_thread(cost: Cost, kind: str) -> float:
    """Return the number of values that one thread processes in sequence."""
    if kind in ("embedding-few", "gather-few"):
        return elements(cost) / cost.run
    if kind in ("scattered", "atomic"):
        return min(_GATHER_VALUES, ceil(elements(cost) / _GATHER_THREADS))
    if cost.family == "norm":
        return cost.row / _NORM_THREADS
    if cost.family == "softmax":
        return cost.row / (WARP if kind in ("softmax", "softmax-wide", "softmax-backward") else _SOFTMAX_THREADS)
    if cost.row >= _GRID:
        return 0.0
    if cost.row >= WARP * _MOST_VALUES:
        return cost.row / _THREADS
    return cost.row / max(WARP, _THREADS / max(1.0, rows(cost)))


def _column(cost: Cost, machine: Machine) -> tuple[float, float]:
    """Return the number of values of a column per thread, and the number of parts into which it is split to fill the
    GPU."""
    values = cost.row / _COLUMN_THREADS
    blocks = ceil(rows(cost) / _COLUMNS)
    wanted = max(1.0, _BLOCKS * machine.sms / max(1, blocks))
    parts = max(1.0, min(wanted, values / _FEWEST_VALUES)) if values > 2 * _FEWEST_VALUES else 1.0
    return values / parts, parts


def _scan_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the seconds of a scan: a block of 512 threads scans several rows, two values per thread in each step.

    The ratio of row length to rows decides how many threads a row gets (PyTorch's ScanUtils.cuh).
    """
    count = max(1.0, rows(cost))
    along = (9 + ceil(log2(max(1, cost.row))) - ceil(log2(count))) // 2
    threads = 2 ** min(9, max(4, along))
    steps = ceil(cost.row / (2 * threads))
    blocks = count * threads / _THREADS
    return steps * (fit["step_us"] + max(1.0, blocks / machine.sms) * fit["block_us"]) * 1e-6


def _column_scan_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Return the seconds of a scan over a dimension that is not the last: each thread processes a column, one load at a
    time."""
    waves = ceil(rows(cost) / (machine.sms * _RESIDENT_THREADS))
    a_step = fit["step_ns"] + fit["step_flop_ns"] * cost.flops / max(1.0, elements(cost))
    return waves * cost.row * a_step * 1e-9
