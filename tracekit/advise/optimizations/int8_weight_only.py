"""Weights in 8 bits."""

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimizations.weight_only import WeightOnly, from_pretrained, other_formats, replaced
from tracekit.analyzers.core import InputError, outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    WIDENING,
    Baseline,
    Extra,
    LinearProduct,
    OpList,
    Outcome,
    each_row,
    linear_product,
    moving,
    pick,
    products_of,
    which,
    with_extras,
)
from tracekit.analyzers.results import Memory

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
STREAM = _KNOWN["stream"]
"""Bandwidth of the generated kernel relative to the library's."""
GENERATED = _KNOWN["generated"]
"""Arithmetic rate of the generated kernel relative to the library's."""
START_US = _KNOWN["start_us"]
"""Additional start-up time of the generated kernel in microseconds."""
WIDENED = _KNOWN["widened"]
"""Number of weights that a multiprocessor widens per clock."""
ELEMENTWISE = _KNOWN["elementwise"]
"""Ratio of real to modelled time of the kernels around a GEMM that is not fused."""
TILE_ROWS = 64
"""Rows of a tile. The weights are widened again for each tile."""


_SCALING, _ADDING = "aten::mul (scales)", "aten::add_ (bias)"


class Int8WeightOnly(WeightOnly):
    """Weights in int8 (torchao), widened before each GEMM.

    PyTorch from 2.7 on widens the weights element by element in a kernel before each GEMM and multiplies the outputs
    by the scales in another one; a third kernel casts the scales, a fourth adds the bias. torchao adds the host time of
    four plain launches. Modelled times are multiplied by 1.1 (0.9 to 1.35). With many rows the scaling of the outputs
    dominates: BERT-large at 16 × 512 tokens on an H200 takes 10.4 ms more (0.66 times as fast). Compiled, the weights
    are written across their order, at 1.4 (0.8 to 2.2) times the modelled time, and each weight is unwrapped at every
    call (see compile). `int8-weight-only:fused` is what earlier compilers generated: the GEMM reads int8 weights at
    0.9 (0.75 to 1.0) of the library's rate, or computes at 0.85 of it, and widens weights again for every 64 rows
    (published: 1.6 times as fast on an A100 and an H100).

    *Hurts* everywhere (measured: 0.5 to 0.7 times as fast eager, 0.3 to 0.5 compiled). It saves memory.
    """

    id = "int8-weight-only"
    excludes: Mapping[str, str] = other_formats("int8-weight-only")
    bits = 8
    scales_bytes = 0.0
    needs = "compile"

    def __init__(self, fused: bool = False) -> None:
        self.fused = fused
        self.eager = not fused

    def with_argument(self, argument: str) -> Self:
        if argument != "fused":
            raise InputError(f"{argument!r} is not known.", "", "Write int8-weight-only or int8-weight-only:fused.")
        return type(self)(fused=True)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        ops = super().transform(base, outcome)
        if self.fused:
            return ops
        products = products_of(base.ops, replaced(base).nonzero()[0])
        biased = {row: base.ops.name[row] == "aten::addmm" for row in products}
        before = each_row(products, lambda product: [_widened(product)])
        after = {row: _scaled(product, biased=biased[row]) for row, product in products.items()}
        ops = with_extras(replace(base, ops=ops), before, after)
        around = which(ops.name, (WIDENING, _SCALING, _ADDING).__contains__)
        return ops.assign(kernel_ns=ops.kernel_ns * np.where(around, pick(ELEMENTWISE, outcome), 1.0))

    def narrow(self, cost: Cost) -> Cost:
        return super().narrow(cost) if self.fused else cost

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """Return the time to read the narrow weights or to compute, plus the time to widen the weights."""
        if not self.fused:
            return before_ns
        product, gpu = linear_product(before), base.gpu
        assert product is not None
        computing = product.rows * 2 * gpu.bandwidth > gpu.sustained_flops(before.precision) * product.element
        rate = pick(GENERATED if computing else STREAM, outcome)
        widening = product.weights * ceil(product.rows / TILE_ROWS) / (pick(WIDENED, outcome) * gpu.sms * gpu.clock_ghz)
        return narrow_ns / rate + pick(START_US, outcome) * 1e3 + widening

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Add the largest layer's weights in 16 bits, unless fused."""
        after = super().memory(base, before)
        if self.fused:
            return after
        widened = max(cost.weight_bytes for cost in base.ops.cost[replaced(base)])
        return replace(after, activations=after.activations + widened)

    def how_to(self, base: Baseline) -> str:
        return from_pretrained("Int8WeightOnlyConfig()", compiled=True)

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_torchao(subject, "Int8WeightOnlyConfig")


def _widened(product: LinearProduct) -> Extra:
    """Return the kernel that widens the weights to 16 bits one by one, because a copy from int8 is not vectorized."""
    weights = product.weights
    return Extra(WIDENING, Cost(0, weights, 2 * weights, "copy", "bf16", access="indexed"))


def _scaled(product: LinearProduct, *, biased: bool) -> list[Extra]:
    """Return the kernels that widen the scales to 16 bits, scale the outputs, and add the bias separately."""
    elements, columns = product.rows * product.outputs, product.outputs
    broadcast = Cost(elements, 2 * elements + 2 * columns, 2 * elements, "pointwise", "bf16", access="indexed")
    times = [Extra("aten::_to_copy", moving(4 * columns, 2 * columns, "bf16", "copy")), Extra(_SCALING, broadcast)]
    return [*times, Extra(_ADDING, broadcast)] if biased else times
