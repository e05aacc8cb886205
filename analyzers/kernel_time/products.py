"""Time of GEMMs: the kind of kernel, and the units that it runs on."""

from collections.abc import Mapping
from dataclasses import replace
from math import hypot
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.gemm import Machine, Products, gemm_seconds
from tracekit.analyzers.kernel_time.padding import VECTOR_BYTES

_SIMT = ("fp64", "fp32")
_UNALIGNED_ROWS = 128
_HALF = 2
_FEW_ROWS = 8
_INT4_ROWS = 16
_PARTS = 16
"""The largest split-K factor."""
_FEW_SUMS = 64
"""Rows up to which GEMMs with a bias use split-K, by a factor of two."""


def product_seconds(cost: Cost, shape: Product, gpu: GPU, machine: Machine, gemm: Mapping[str, Any]) -> float:
    """Return the seconds of a batch of GEMMs; `gemm` are the sections [gemm.*] of constants.toml."""
    kernel = kind(cost, shape, gpu)
    if kernel == "int4":
        return _int4_seconds(cost, shape, machine, gemm["int4"])
    if kernel == "few rows":
        return _few_rows_seconds(cost, shape, machine, gemm["few"])
    if kernel == "one row":
        start = gemm["one-row" if shape.groups == 1 else "tensor"]["start_us"]
        seconds = start * 1e-6 + cost.bytes / (machine.bandwidth * gemm["one-row"]["stream"])
    else:
        seconds = _tiled_seconds(cost, shape, gpu, machine, gemm, kernel == "unaligned")
    if shape.row_scales and cost.precision == "fp8":
        return float(max(seconds, gemm["rowwise"]["start_us"] * 1e-6 + shape.k * gemm["rowwise"]["step_ns"] * 1e-9))
    return float(seconds)


def _tiled_seconds(
    cost: Cost, shape: Product, gpu: GPU, machine: Machine, gemm: Mapping[str, Any], unaligned: bool
) -> float:
    m, rate = shape.m, machine.flops
    if unaligned:
        a_clock = gemm["unaligned"]["halves" if machine.operand_bytes <= _HALF else "words"]
        rate = min(rate, a_clock * machine.sms * machine.clock_hz)
        m = max(m, min(_UNALIGNED_ROWS, _INT4_ROWS * m))
    products = replace(tiled(cost, shape, gpu), m=m)
    return float(gemm_seconds(products, replace(machine, flops=rate), tiled_fit(gemm, cost, gpu)))


def tiled_fit(gemm: Mapping[str, Any], cost: Cost, gpu: GPU) -> Mapping[str, float]:
    """Return the section of the units. With tf32, another kernel first clears the output for split-K."""
    fit: Mapping[str, float] = gemm["tf32" if gpu.runs_as(cost.precision) == "tf32" else units_of(cost, gpu)]
    return fit


def kind(cost: Cost, shape: Product, gpu: GPU) -> str:
    """Return the kind of kernel: tiled, one row, few rows, unaligned or int4."""
    element = ELEMENT_BYTES[cost.precision]
    if shape.stored == "int4":
        return "int4"
    if min(shape.m, shape.n) == 1:
        return "one row"
    if shape.groups == 1 and shape.m <= _FEW_ROWS and units_of(cost, gpu) == "simt":
        return "few rows"
    unaligned = any(side * element % VECTOR_BYTES for side in vectors(shape))
    return "unaligned" if unaligned and units_of(cost, gpu) == "tensor" else "tiled"


def vectors(shape: Product) -> tuple[int, ...]:
    """Return the lengths in elements of the rows in memory of operands and result. In a weight's gradient, the rows of
    a transposed operand have m elements."""
    return (shape.n, shape.k, shape.m) if shape.gradient else (shape.n, shape.k)


def is_unaligned(cost: Cost, gpu: GPU) -> bool:
    """Return whether the rows of a GEMM are not whole vectors, so that tensor units load one element at a time."""
    shape = cost.work
    return cost.family == "gemm" and isinstance(shape, Product) and kind(cost, shape, gpu) == "unaligned"


def tiled(cost: Cost, shape: Product, gpu: GPU) -> Products:
    """Return the GEMM as its tiles cover it.

    On fp32 units, a fused bias rules out split-K (with few rows, it limits split-K to two parts). Integer kernels have
    no split-K. cuBLAS's smallest tiles on fp32 units have 32 rows. In batches they have 64 rows, and on Ampere and Ada
    128 rows, where a depth of less than 128 takes as long as 128.
    """
    m, n, k, moved = shape.m, shape.n, shape.k, cost.bytes
    if units_of(cost, gpu) == "tensor":
        return Products(shape.groups, m, n, k, moved, 1 if cost.precision == "int8" else _PARTS)
    parts = _PARTS if not shape.bias else 2 if m <= _FEW_SUMS else 1
    large = shape.groups > 1 and (8, 0) <= gpu.compute_capability < (9, 0)
    rows = 32 if shape.groups == 1 else 128 if large else 64
    return Products(shape.groups, m, n, max(k, 128) if large else k, moved, parts, rows)


def units_of(cost: Cost, gpu: GPU) -> str:
    """Return "tensor" or "simt"."""
    return "simt" if gpu.runs_as(cost.precision) in _SIMT else "tensor"


def _few_rows_seconds(cost: Cost, shape: Product, machine: Machine, fit: Mapping[str, float]) -> float:
    """Return the seconds with few rows: each thread loops over k for all rows. Memory traffic, multiplications and the
    sequential steps overlap in part."""
    stream = cost.bytes / machine.bandwidth
    busy = shape.m * shape.n * shape.k * fit["cycles"] / (machine.sms * machine.clock_hz)
    steps = shape.k * (fit["step_ns"] + shape.m * fit["row_ns"]) * 1e-9
    return fit["start_us"] * 1e-6 + hypot(stream, busy, steps)


def _int4_seconds(cost: Cost, shape: Product, machine: Machine, fit: Mapping[str, float]) -> float:
    """Return the seconds with int4 weights, which are streamed, and unpacked once for every 16 rows."""
    blocks = max(fit["one_row"], shape.m / _INT4_ROWS)
    unpacked = shape.n * shape.k * blocks * fit["cycles"] / (machine.sms * machine.clock_hz)
    return fit["start_us"] * 1e-6 + max(cost.bytes / (machine.bandwidth * fit["stream"]), unpacked)
