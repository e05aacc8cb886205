"""Weights in 4 bits, in groups with a scale each."""

from collections.abc import Mapping

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.measurement import quantized
from tracekit.measurement.subject import Subject
from tracekit.optimizations.linear_products import other_formats
from tracekit.optimizations.weight_only import WeightOnly


class Int4WeightOnly(WeightOnly):
    id = "int4-weight-only"
    title = "Weights in int4"
    excludes: Mapping[str, str] = other_formats("int4-weight-only")
    bits = 4
    needs = "bf16"
    efficiency = Interval(0.5, 0.65, 0.85)
    caveats = (
        "Quality drops measurably: check perplexity, and use calibrated weights (AWQ, GPTQ) if it matters.",
        "Large batches lose: above some 64 rows the unpacking costs more than the bytes saved.",
    )

    def how_to(self, base: Baseline) -> str:
        return "torchao.quantization.quantize_(model, Int4WeightOnlyConfig(group_size=128))"

    def apply(self, subject: Subject) -> Subject:
        """In the layout of the kernel that comes with PyTorch, which takes bf16."""
        return quantized.with_torchao(
            subject.with_dtype("bf16"), "Int4WeightOnlyConfig", int4_packing_format="tile_packed_to_4d"
        )
