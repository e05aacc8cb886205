"""What follows each other within a thread or a block, and takes its time however little data there is."""

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.kinds import elements, rows

_WARP = 32
_THREADS = 512
"""Of a block that reduces rows; shared by up to 16 rows, a warp each, until a row has 256 values a thread."""
_MOST_VALUES = 256
"""Of one row in a thread, before the row is split over blocks."""
_GRID = _THREADS * _MOST_VALUES
_NORM_THREADS = 128
_SOFTMAX_THREADS = 1024
"""Of a block, one for each row."""
_COLUMN_THREADS = 16
"""Of a block that reduces columns, along a column."""
_COLUMNS = 128
"""Of such a block: 32 threads of 4 columns."""
_FEWEST_VALUES = 16
"""Of a column in a thread, before the column is split over blocks."""
_BLOCKS = 4
"""Of 512 threads on a multiprocessor."""
_CHUNK = 1 << 16
"""Elements of a list that one block goes through."""
_GATHER_THREADS, _GATHER_VALUES = 128, 8


def serial_seconds(cost: Cost, kind: str, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Seconds of the values of one thread, and of what joins the parts of a split row or column."""
    if kind == "columns":
        return (_column(cost, machine)[1] - 1) * fit["part_ns"] * 1e-9
    joined = fit["split_us"] * 1e-6 if "split_us" in fit and cost.row >= _GRID else 0.0
    value_ns = fit.get("value_ns", 0.0) + fit.get("value_byte_ns", 0.0) * ELEMENT_BYTES[cost.precision]
    steps = fit.get("flop_ns", 0.0) * cost.flops / max(1.0, elements(cost))
    return (_values_a_thread(cost, kind) * value_ns + steps) * 1e-9 + joined


def overlapped_seconds(cost: Cost, kind: str, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Seconds of a thread's work beside which other blocks move bytes: a split column, a scan, a chunk of a list."""
    if kind == "columns":
        return _column(cost, machine)[0] * fit["value_ns"] * 1e-9
    if kind == "scan":
        return _scan_seconds(cost, machine, fit)
    if kind == "optimizer":
        return _list_seconds(cost, machine, fit)
    return 0.0


def _list_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Vectors of four elements from each list: of all chunks, and of the one chunk that a block goes through alone."""
    count = max(1.0, elements(cost))
    streams = round(cost.bytes / count / ELEMENT_BYTES[cost.precision])
    alone = fit["chunk_cycles"] + fit["chunk_byte_cycles"] * ELEMENT_BYTES[cost.precision]
    vectors = max(count / machine.sms * fit["vector_cycles"], min(count, _CHUNK) * alone)
    return streams * vectors / machine.clock_hz


def _values_a_thread(cost: Cost, kind: str) -> float:
    """How many values follow each other in a thread."""
    if kind in ("embedding-few", "gather-few"):
        return elements(cost) / cost.run
    if kind in ("scattered", "atomic"):
        return min(_GATHER_VALUES, ceil(elements(cost) / _GATHER_THREADS))
    if cost.family == "norm":
        return cost.row / _NORM_THREADS
    if cost.family == "softmax":
        return cost.row / (_WARP if kind in ("softmax", "softmax-wide", "softmax-backward") else _SOFTMAX_THREADS)
    if cost.row >= _GRID:
        return 0.0
    if cost.row >= _WARP * _MOST_VALUES:
        return cost.row / _THREADS
    return cost.row / max(_WARP, _THREADS / max(1.0, rows(cost)))


def _column(cost: Cost, machine: Machine) -> tuple[float, float]:
    """Values of a column in a thread, and parts that it is split into: enough to fill the GPU, none too small."""
    values = cost.row / _COLUMN_THREADS
    blocks = ceil(rows(cost) / _COLUMNS)
    wanted = max(1.0, _BLOCKS * machine.sms / max(1, blocks))
    parts = max(1.0, min(wanted, values / _FEWEST_VALUES)) if values > 2 * _FEWEST_VALUES else 1.0
    return values / parts, parts


def _scan_seconds(cost: Cost, machine: Machine, fit: Mapping[str, Any]) -> float:
    """A block of 512 threads scans several rows, a step of two values a thread after the other.

    Threads are shared out between rows and their values by the ratio of the two (PyTorch's ScanUtils.cuh).
    """
    count = max(1.0, rows(cost))
    along = (9 + ceil(log2(max(1, cost.row))) - ceil(log2(count))) // 2
    threads = 2 ** min(9, max(4, along))
    steps = ceil(cost.row / (2 * threads))
    blocks = count * threads / _THREADS
    return steps * (fit["step_us"] + max(1.0, blocks / machine.sms) * fit["block_us"]) * 1e-6
