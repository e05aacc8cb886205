"""Weights in 8 bits."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Self

import pandas as pd

from analyzers.costs.call import Cost
from analyzers.errors import InputError
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import Memory
from tracekit.measurement import quantized
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Outcome, pick
from tracekit.optimizations.by_cost import each_row
from tracekit.optimizations.extra_kernels import WIDENING, Extra, moving, with_extras
from tracekit.optimizations.linear_products import linear_product, other_formats, products_of
from tracekit.optimizations.torchao_code import from_pretrained
from tracekit.optimizations.weight_only import WeightOnly, replaced

STREAM = Interval(0.75, 0.9, 1.0)
"""Bandwidth of the generated product over that of the library's."""
GENERATED = Interval(0.7, 0.85, 1.0)
"""Its rate of arithmetic, likewise."""
START_US = Interval(3.0, 0.5, 0.0)
"""How much longer its start is."""
WIDENED = Interval(64, 128, 256)
"""Weights that a multiprocessor widens a clock."""
TILE_ROWS = 64
"""Rows of a tile, for each of which the weights are widened again."""


class Int8WeightOnly(WeightOnly):
    """Weights widened by a kernel of its own before each product, as PyTorch from 2.7 on does; `fused`: inside it."""

    id = "int8-weight-only"
    title = "Weights in int8"
    excludes: Mapping[str, str] = other_formats("int8-weight-only")
    bits = 8
    scales_bytes = 0.0
    needs = "compile"
    caveats = (
        "It saves memory, not time: PyTorch from 2.7 on widens the weights in a kernel of its own, compiled or not.",
        "Compilers before that widened them inside the product (predicted as int8-weight-only:fused).",
    )

    def __init__(self, fused: bool = False) -> None:
        self.fused = fused
        self.eager = not fused

    def with_argument(self, argument: str) -> Self:
        if argument != "fused":
            raise InputError(f"{argument!r} is not known.", "", "Write int8-weight-only or int8-weight-only:fused.")
        return type(self)(fused=True)

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        ops = super().transform(base, outcome)
        if self.fused:
            return ops
        places = replaced(base).to_numpy().nonzero()[0]
        products = products_of(base.ops, places)
        before = each_row(products, lambda product: [_widening(product.weights)])
        return with_extras(replace(base, ops=ops), before, {})

    def narrow(self, cost: Cost) -> Cost:
        return super().narrow(cost) if self.fused else cost

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """The stream of narrow weights, or the arithmetic; and widening."""
        if not self.fused:
            return before_ns
        product, gpu = linear_product(before), base.gpu
        assert product is not None
        computing = product.rows * 2 * gpu.bandwidth > gpu.sustained_flops(before.precision) * product.element
        rate = pick(GENERATED if computing else STREAM, outcome)
        widening = product.weights * ceil(product.rows / TILE_ROWS) / (pick(WIDENED, outcome) * gpu.sms * gpu.clock_ghz)
        return narrow_ns / rate + pick(START_US, outcome) * 1e3 + widening

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Unless fused, the largest layer's weights stand there in 16 bits, too."""
        after = super().memory(base, before)
        if self.fused:
            return after
        widened = max(cost.weight_bytes for cost in base.ops.cost[replaced(base)])
        return replace(after, activations=after.activations + widened)

    def how_to(self, base: Baseline) -> str:
        return from_pretrained("Int8WeightOnlyConfig()", compiled=True)

    def apply(self, subject: Subject) -> Subject:
        return quantized.with_torchao(subject, "Int8WeightOnlyConfig")


def _widening(weights: int) -> Extra:
    """To int32, to 16 bits, then times the scale: 1 + 4, 4 + 2 and 2 + 2 bytes."""
    return Extra(WIDENING, moving(7 * weights, 8 * weights, "bf16", "copy"), host=3)
