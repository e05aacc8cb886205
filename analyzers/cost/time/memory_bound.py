"""The kind of PyTorch kernel that a memory-bound op runs, which is a section of constants.toml."""

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.hardware.data_sheet import sm_limits
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Lookup, Loss, Norm, Precision, Softmax
from tracekit.analyzers.cost.time.gemm import VECTOR_BYTES, Machine

_WARP_ROW = 1024
"""Longest softmax row that one warp keeps in registers. The forward pass takes twice that since PyTorch 2.6."""
_SHARED_BYTES = 48 << 10
"""Longest softmax row that a block keeps in shared memory, if it consists of whole vectors."""
_WORD_BYTES = 4
_FEW_LOOKUPS = 16
"""Lookups up to which one kernel processes the indices in sequence."""
_FEW_GRADIENTS = 3072
"""Rows of an embedding's gradient up to which the indices are not sorted first."""


def kind(cost: Cost) -> str:
    """Return the section [memory.*] of constants.toml for a cost."""
    named = {"softmax": _softmax, "norm": _norm, "embedding": _lookup, "gather": _lookup, "copy": _copy, "loss": _loss}
    if cost.family in named:
        return named[cost.family](cost)
    return cost.family if cost.access == "linear" else cost.access


def elements(cost: Cost) -> float:
    """Return the number of elements of the result, or of the input of a reduction."""
    reduced = cost.row and cost.family in ("reduction", "optimizer")
    moved = cost.read_bytes if reduced else _result_bytes(cost)
    return moved / ELEMENT_BYTES[cost.precision]


def _result_bytes(cost: Cost) -> int:
    """Return the bytes of the result; for a norm or softmax, without its statistics and in the type of its input."""
    return min(cost.read_bytes, cost.write_bytes) if cost.row else cost.write_bytes


def rows(cost: Cost) -> float:
    return elements(cost) / cost.row if cost.row else 0.0


def _softmax(cost: Cost) -> str:
    if isinstance(cost.work, Softmax) and cost.work.backward:
        return "softmax-backward" if cost.row <= _WARP_ROW else "softmax-backward-long"
    if cost.row <= 2 * _WARP_ROW:
        return "softmax" if cost.row <= _WARP_ROW else "softmax-wide"
    row_bytes = cost.row * ELEMENT_BYTES[cost.precision]
    return "softmax-shared" if row_bytes < _SHARED_BYTES and not row_bytes % VECTOR_BYTES else "softmax-long"


def _norm(cost: Cost) -> str:
    if cost.access != "linear":
        return "norm-columns"
    if isinstance(cost.work, Norm) and cost.work.channels:
        return _batch_norm(cost.work, cost.precision)
    return "norm" if not isinstance(cost.work, Norm) or cost.work.centered else "norm-rms"


def _batch_norm(work: Norm, precision: Precision) -> str:
    """Return the section of a batch norm. PyTorch's own kernels compute in bf16 and fp64, cuDNN's in other types."""
    last, own = "-last" if work.channels_last else "", "-own" if precision in ("bf16", "fp64") else ""
    return f"batch-norm{last}{own}" + ("-backward" if work.backward else "")


def _lookup(cost: Cost) -> str:
    looked_up = elements(cost) / cost.run if cost.run else 0
    if isinstance(cost.work, Lookup) and cost.work.adds:
        return "embedding-few" if 0 < looked_up <= _FEW_GRADIENTS else "embedding"
    if cost.access != "linear":
        return cost.access
    return "gather-few" if 0 < looked_up <= _FEW_LOOKUPS else "gather"


def _copy(cost: Cost) -> str:
    if cost.access != "linear":
        return "copy-cast" if cost.access == "cast" else cost.access
    if cost.read_bytes:
        return "copy"
    return "fill" if ELEMENT_BYTES[cost.precision] >= _WORD_BYTES else "fill-narrow"


def _loss(cost: Cost) -> str:
    return "loss-backward" if isinstance(cost.work, Loss) and cost.work.backward else "loss"


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
    cycles = elements(cost) * fit.get("cycles", 0.0) + rows(cost) * of_a_row * _share_of_warp(cost)
    cycles += cost.bytes * fit.get("byte_cycles", 0.0) + cost.flops * fit.get("flop_cycles", 0.0)
    return float(cycles / machine.sms / machine.clock_hz)


def _share_of_warp(cost: Cost) -> float:
    """Return the part of a warp that reduces a row. PyTorch gives a row the largest power of two of threads that it
    fills, so several short rows share a warp; norms take a warp for each."""
    return min(1.0, 2 ** (cost.row.bit_length() - 1) / WARP) if cost.family == "reduction" and cost.row else 1.0


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
