"""Time of a GEMM: tiles, waves, split-K, and a utilisation bounded by the roof.

After NeuSight (Lee et al., ASPLOS 2025: tile x wave x bounded utilisation), with split-K added. The best tile is
taken, because the library's choice is unknown. Shapes broadcast, so GEMMs may be arrays.
"""

from collections.abc import Mapping
from math import hypot
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from tracekit.analyzers.core import Floats
from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Product

_SIDES = np.array([16, 32, 64, 128, 256], dtype=np.float64)
_SPLITS = np.array([1, 2, 4, 8, 16], dtype=np.float64)
_TM, _TN, _SPLIT = (side.ravel() for side in np.meshgrid(_SIDES, _SIDES, _SPLITS, indexing="ij"))
_IS_SPLIT = _SPLIT > 1
_PARTIAL_BYTES = np.where(_IS_SPLIT, 8 * _SPLIT, 0)
"""Bytes per output element with split-K: each part writes its fp32 sum, and the reduction reads it."""
_L2_BYTES_PER_CLOCK = 64
"""Bytes that one multiprocessor can read from the L2 per clock."""


class Machine(msgspec.Struct, frozen=True):
    """The rates of a GPU for ops of one precision."""

    flops: float
    """Sustained FLOP/s of the units."""
    bandwidth: float
    """Sustained B/s of device memory."""
    sms: int
    clock_hz: float
    operand_bytes: float
    """Bytes of an input element."""

    @property
    def l2_bandwidth(self) -> float:
        """Largest rate at which the multiprocessors can read from the L2, in B/s."""
        return _L2_BYTES_PER_CLOCK * self.sms * self.clock_hz


class Products(msgspec.Struct, frozen=True):
    """GEMMs out[batch, m, n] = a[batch, m, k] · b[batch, k, n] and the bytes that each must move."""

    batch: ArrayLike
    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    bytes: ArrayLike
    most_parts: ArrayLike = 16
    """The largest split-K factor."""
    least_rows: ArrayLike = 1
    """Number of rows of the library's smallest tile."""


def gemm_seconds(products: Products, machine: Machine, fit: Mapping[str, float]) -> Floats:
    """Return the seconds of each GEMM."""
    sizes = (products.batch, products.m, products.n, products.k, products.bytes)
    batch, m, n, k, moved = (_spread_over_tilings(size) for size in sizes)
    ctas = batch * np.ceil(m / _TM) * np.ceil(n / _TN) * _SPLIT
    depth = np.ceil(k / _SPLIT)
    compute = _compute_seconds(ctas, depth, machine, fit)
    partial_sums = batch * m * n * _PARTIAL_BYTES
    streaming = np.minimum(1, fit["stream_sms"] * ctas / machine.sms)
    memory = (moved + partial_sums) / (machine.bandwidth * fit["stream"] * streaming)
    p = fit["overlap"]
    total = (compute**p + memory**p) ** (1 / p) + _IS_SPLIT * fit["split_us"] * 1e-6
    impossible = (_spread_over_tilings(products.most_parts) < _SPLIT) | (
        _spread_over_tilings(products.least_rows) > _TM
    )
    best: Floats = fit["start_us"] * 1e-6 + np.where(impossible, np.inf, total).min(axis=-1)
    return best


def _spread_over_tilings(field: ArrayLike) -> Floats:
    """Return the field with an added last dimension for the tilings."""
    return np.asarray(field, dtype=np.float64)[..., None]


def _compute_seconds(ctas: Floats, depth: Floats, machine: Machine, fit: Mapping[str, float]) -> Floats:
    """Return the seconds of full waves and of the last, partial wave. A multiprocessor with few CTAs in flight stays
    below its rate."""
    area = _TM * _TN
    resident = np.maximum(1, np.floor(fit["resident"] / area))
    per_wave = machine.sms * resident
    waves = np.floor(ctas / per_wave)
    tail = np.ceil((ctas - waves * per_wave) / machine.sms)
    prologue = fit["prologue_bytes"] / machine.operand_bytes
    one_cta = 2 * area * (depth + prologue) / (machine.flops / machine.sms)

    def slowdown(in_flight: Floats) -> Floats:
        return np.sqrt(np.maximum(1, fit["saturation"] / (np.maximum(1, in_flight) * area)))

    seconds: Floats = one_cta * (waves * resident * slowdown(resident) + tail * slowdown(tail))
    return seconds


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


VECTOR_BYTES = 16
"""Bytes that a thread loads at once, which rows in memory must be whole multiples of."""


def multiple_of(cost: Cost) -> int:
    """Return the number of elements of a vector."""
    return max(1, round(VECTOR_BYTES / ELEMENT_BYTES[cost.precision]))


def rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def padded(cost: Cost) -> Cost:
    """Return the cost of a GEMM with padded sizes."""
    shape, multiple = cost.work, multiple_of(cost)
    assert isinstance(shape, Product)
    n, k = rounded_up(shape.n, multiple), rounded_up(shape.k, multiple)
    m = rounded_up(shape.m, multiple) if shape.gradient or shape.m in (shape.n, shape.k) else shape.m
    grown = (m * n * k) / (shape.m * shape.n * shape.k)
    wider = max(n / shape.n, k / shape.k)
    return replace(
        cost,
        flops=round(cost.flops * grown),
        read_bytes=round(cost.read_bytes * wider),
        write_bytes=round(cost.write_bytes * m * n / (shape.m * shape.n)),
        weight_bytes=round(cost.weight_bytes * wider),
        work=replace(shape, m=m, n=n, k=k),
    )
