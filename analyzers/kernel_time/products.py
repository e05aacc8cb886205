"""Time of a cost that is a matrix product: which kind of kernel it gets, and on which units."""

from collections.abc import Mapping
from dataclasses import replace
from math import hypot
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost, Gemm
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.gemm import Machine, Products, gemm_seconds

_SIMT = ("fp64", "fp32")
_ALIGNMENT = 16
"""Bytes that rows of the matrices must be a multiple of for tensor units to be fed by vectors."""
_UNALIGNED_ROWS = 128
_HALF = 2
_FEW_ROWS = 8
_INT4_ROWS = 16
_PARTS = 16
"""At most, of a depth that is split."""
_FEW_SUMS = 64
"""Rows up to which sums with a bias are halved."""
_SCALE_BYTES = 4
_INT4 = 0.4
"""Weights below this part of the operands' size are taken for int4, unpacked by the kernel."""


def product_seconds(cost: Cost, shape: Gemm, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Seconds of a batch of products; `fits` are the sections gemm and gemv of constants.toml."""
    gemm, kernel = fits["gemm"], kind(cost, shape, gpu)
    if kernel == "int4":
        return _int4_seconds(cost, shape, machine, gemm["int4"])
    if kernel == "few rows":
        return _few_rows_seconds(cost, shape, machine, gemm["few"])
    if kernel == "one row":
        gemv = fits["gemv"]
        start = gemv["start_us"] if shape.batch == 1 else gemv["batched_us"]
        seconds = start * 1e-6 + cost.bytes / (machine.bandwidth * gemv["stream"])
    else:
        seconds = _tiled_seconds(cost, shape, gpu, machine, gemm, kernel == "unaligned")
    if is_scaled_by_row(cost, shape):
        return float(max(seconds, gemm["rowwise"]["start_us"] * 1e-6 + shape.k * gemm["rowwise"]["step_ns"] * 1e-9))
    return float(seconds)


def _tiled_seconds(
    cost: Cost, shape: Gemm, gpu: GPU, machine: Machine, gemm: Mapping[str, Any], unaligned: bool
) -> float:
    m, rate = shape.m, machine.flops
    if unaligned:
        a_clock = gemm["unaligned"]["halves" if machine.operand_bytes <= _HALF else "words"]
        rate = min(rate, a_clock * machine.sms * machine.clock_hz)
        m = max(m, min(_UNALIGNED_ROWS, _INT4_ROWS * m))
    products = replace(tiled(cost, shape, gpu), m=m)
    return float(gemm_seconds(products, replace(machine, flops=rate), tiled_fit(gemm, cost, gpu)))


def tiled_fit(gemm: Mapping[str, Any], cost: Cost, gpu: GPU) -> Mapping[str, float]:
    """The section of the units; tf32 adds a kernel that clears what the parts of a sum are added to."""
    fit: Mapping[str, float] = gemm[units_of(cost, gpu)]
    return {**fit, **gemm["tf32"]} if gpu.runs_as(cost.precision) == "tf32" else fit


def is_scaled_by_row(cost: Cost, shape: Gemm) -> bool:
    """Whether an fp8 product reads a scale a row and a column; its kernel goes through the depth unsplit."""
    operands = shape.batch * shape.k * (shape.m + shape.n)
    return cost.precision == "fp8" and cost.read_bytes >= operands + _SCALE_BYTES * (shape.m + shape.n)


def kind(cost: Cost, shape: Gemm, gpu: GPU) -> str:
    """The kind of kernel: tiled, one row, few rows, unaligned or int4."""
    element = ELEMENT_BYTES[cost.precision]
    if 0 < cost.weight_bytes < _INT4 * shape.n * shape.k * element:
        return "int4"
    if min(shape.m, shape.n) == 1:
        return "one row"
    if shape.batch == 1 and shape.m <= _FEW_ROWS and units_of(cost, gpu) == "simt":
        return "few rows"
    unaligned = any(side * element % _ALIGNMENT for side in (shape.n, shape.k))
    return "unaligned" if unaligned and units_of(cost, gpu) == "tensor" else "tiled"


def is_unaligned(cost: Cost, gpu: GPU) -> bool:
    """Whether the rows of a product are no whole vectors, so that tensor units are fed an element at a time."""
    shape = cost.shape
    return cost.family == "gemm" and isinstance(shape, Gemm) and kind(cost, shape, gpu) == "unaligned"


def tiled(cost: Cost, shape: Gemm, gpu: GPU) -> Products:
    """What the tiles of a product cover.

    An added bias is the kernel's epilogue, which on fp32 units rules parts of sums out, with few rows all but halves;
    kernels of integers have none. cuBLAS has no small tiles on fp32 units: of 32 rows; in batches of 64, on Ampere and
    Ada of 128, whose time for a depth of less than 128 is that of 128.
    """
    m, n, k, moved = shape.m, shape.n, shape.k, cost.bytes
    if units_of(cost, gpu) == "tensor":
        return Products(shape.batch, m, n, k, moved, 1 if cost.precision == "int8" else _PARTS)
    has_bias = cost.read_bytes > shape.batch * k * (m + n) * ELEMENT_BYTES[cost.precision]
    parts = _PARTS if not has_bias else 2 if m <= _FEW_SUMS else 1
    large = shape.batch > 1 and (8, 0) <= gpu.compute_capability < (9, 0)
    rows = 32 if shape.batch == 1 else 128 if large else 64
    return Products(shape.batch, m, n, max(k, 128) if large else k, moved, parts, rows)


def units_of(cost: Cost, gpu: GPU) -> str:
    """tensor or simt."""
    return "simt" if gpu.runs_as(cost.precision) in _SIMT else "tensor"


def _few_rows_seconds(cost: Cost, shape: Gemm, machine: Machine, fit: Mapping[str, float]) -> float:
    """Threads walk the depth, unsplit, with all rows at a time: bytes, multiplications, one step after the other."""
    stream = cost.bytes / machine.bandwidth
    busy = shape.m * shape.n * shape.k * fit["cycles"] / (machine.sms * machine.clock_hz)
    steps = shape.k * (fit["step_ns"] + shape.m * fit["row_ns"]) * 1e-9
    return fit["start_us"] * 1e-6 + hypot(stream, busy, steps)


def _int4_seconds(cost: Cost, shape: Gemm, machine: Machine, fit: Mapping[str, float]) -> float:
    """The weights streamed, and unpacked again for every 16 rows; a single row costs a part of that."""
    blocks = max(fit["one_row"], shape.m / _INT4_ROWS)
    unpacked = shape.n * shape.k * blocks * fit["cycles"] / (machine.sms * machine.clock_hz)
    return fit["start_us"] * 1e-6 + max(cost.bytes / (machine.bandwidth * fit["stream"]), unpacked)
