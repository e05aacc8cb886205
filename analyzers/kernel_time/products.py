"""Time of a cost that is a matrix product: which kind of kernel it gets, and on which units."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analyzers.costs.call import ELEMENT_BYTES, Cost, Gemm
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine, Products, gemm_seconds

_SIMT = ("fp64", "fp32")
_ALIGNMENT = 16
"""Bytes that rows of the matrices must be a multiple of for tensor units to be fed by vectors."""
_UNALIGNED_ROWS = 128
_INT4_ROWS = 16
_SCALE_BYTES = 4
_INT4 = 0.4
"""Weights below this part of the operands' size are taken for int4, unpacked by the kernel."""


def product_seconds(cost: Cost, shape: Gemm, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Seconds of a batch of products; `fits` are the sections gemm and gemv of constants.toml."""
    gemm, kernel = fits["gemm"], kind(cost, shape, gpu)
    if kernel == "int4":
        return _int4_seconds(cost, shape, machine, gemm["int4"])
    if kernel == "one row":
        seconds = fits["gemv"]["start_us"] * 1e-6 + cost.bytes / (machine.bandwidth * fits["gemv"]["stream"])
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
        rate = min(rate, gemm["tensor"]["unaligned"] * machine.sms * machine.clock_hz)
        m = max(m, min(_UNALIGNED_ROWS, _INT4_ROWS * m))
    products = Products(shape.batch, m, shape.n, shape.k, cost.bytes, may_split(cost, shape, gpu))
    return float(gemm_seconds(products, replace(machine, flops=rate), gemm[units_of(cost, gpu)]))


def is_scaled_by_row(cost: Cost, shape: Gemm) -> bool:
    """Whether an fp8 product reads a scale a row and a column; its kernel goes through the depth unsplit."""
    operands = shape.batch * shape.k * (shape.m + shape.n)
    return cost.precision == "fp8" and cost.read_bytes >= operands + _SCALE_BYTES * (shape.m + shape.n)


def kind(cost: Cost, shape: Gemm, gpu: GPU) -> str:
    """The kind of kernel: tiled, one row, unaligned or int4."""
    element = ELEMENT_BYTES[cost.precision]
    if 0 < cost.weight_bytes < _INT4 * shape.n * shape.k * element:
        return "int4"
    if min(shape.m, shape.n) == 1:
        return "one row"
    unaligned = any(side * element % _ALIGNMENT for side in (shape.n, shape.k))
    return "unaligned" if unaligned and units_of(cost, gpu) == "tensor" else "tiled"


def may_split(cost: Cost, shape: Gemm, gpu: GPU) -> bool:
    """An added bias is the kernel's epilogue, which on fp32 units rules parts of sums out."""
    operands = shape.batch * shape.k * (shape.m + shape.n) * ELEMENT_BYTES[cost.precision]
    return units_of(cost, gpu) == "tensor" or cost.read_bytes <= operands


def units_of(cost: Cost, gpu: GPU) -> str:
    """tensor or simt."""
    return "simt" if gpu.runs_as(cost.precision) in _SIMT else "tensor"


def _int4_seconds(cost: Cost, shape: Gemm, machine: Machine, fit: Mapping[str, float]) -> float:
    """The weights streamed, and unpacked again for every 16 rows; a single row costs a part of that."""
    blocks = max(fit["one_row"], shape.m / _INT4_ROWS)
    unpacked = shape.n * shape.k * blocks * fit["cycles"] / (machine.sms * machine.clock_hz)
    return fit["start_us"] * 1e-6 + max(cost.bytes / (machine.bandwidth * fit["stream"]), unpacked)
