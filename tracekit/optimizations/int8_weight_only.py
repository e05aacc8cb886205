"""Weights in 8 bits."""

from collections.abc import Mapping
from math import ceil

from analyzers.costs.call import Cost
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.measurement import quantized
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Outcome, pick
from tracekit.optimizations.linear_products import linear_product, other_formats
from tracekit.optimizations.torchao_code import from_pretrained
from tracekit.optimizations.weight_only import WeightOnly

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
    id = "int8-weight-only"
    title = "Weights in int8"
    excludes: Mapping[str, str] = other_formats("int8-weight-only")
    eager = False
    bits = 8
    scales_bytes = 0.0
    needs = "compile"
    caveats = ("Compile with it: eager code unpacks the weights in a kernel of its own and loses the gain.",)

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """The stream of narrow weights, or the arithmetic; and widening."""
        product, gpu = linear_product(before), base.gpu
        assert product is not None
        computing = product.rows * 2 * gpu.bandwidth > gpu.sustained_flops(before.precision) * product.element
        rate = pick(GENERATED if computing else STREAM, outcome)
        widening = product.weights * ceil(product.rows / TILE_ROWS) / (pick(WIDENED, outcome) * gpu.sms * gpu.clock_ghz)
        return narrow_ns / rate + pick(START_US, outcome) * 1e3 + widening

    def how_to(self, base: Baseline) -> str:
        return from_pretrained("Int8WeightOnlyConfig()", compiled=True)

    def apply(self, subject: Subject) -> Subject:
        return quantized.with_torchao(subject, "Int8WeightOnlyConfig")
