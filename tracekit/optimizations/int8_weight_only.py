"""Weights in 8 bits."""

from collections.abc import Mapping

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.measurement import quantized
from tracekit.measurement.subject import Subject
from tracekit.optimizations.linear_products import other_formats
from tracekit.optimizations.weight_only import WeightOnly


class Int8WeightOnly(WeightOnly):
    id = "int8-weight-only"
    title = "Weights in int8"
    excludes: Mapping[str, str] = other_formats("int8-weight-only")
    bits = 8
    needs = "compile"
    efficiency = Interval(0.7, 0.85, 0.95)
    caveats = ("Compile with it: eager code unpacks the weights in a kernel of its own and loses the gain.",)

    def how_to(self, base: Baseline) -> str:
        return "torchao.quantization.quantize_(model, Int8WeightOnlyConfig()); model = torch.compile(model)"

    def apply(self, subject: Subject) -> Subject:
        return quantized.with_torchao(subject, "Int8WeightOnlyConfig")
