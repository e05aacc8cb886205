"""Time of work that one thread or block does in sequence, which does not shrink with the amount of data."""

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Norm
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.kernel_kinds import elements, rows

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
