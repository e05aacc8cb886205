"""fp8 products: weights stored in fp8, activations scaled and cast row by row."""

from collections.abc import Mapping

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.measurement import quantized
from tracekit.measurement.subject import Subject
from tracekit.optimizations.dynamic_quantization import DynamicQuantization
from tracekit.optimizations.linear_products import other_formats


class FP8Dynamic(DynamicQuantization):
    id = "fp8-dynamic"
    title = "fp8 products, dynamic scales"
    precision = "fp8"
    needs = "float8-dynamic"
    stream = Interval(0.7, 0.85, 1.0)
    excludes: Mapping[str, str] = other_formats("fp8-dynamic")
    caveats = (
        "Compile with it: eager code quantises each input in seven kernels, compiled code in one.",
        "Few rows lose: the product waits for a quantising kernel that takes as long as it saves.",
        "Outputs change in the second digit; check quality.",
    )

    def how_to(self, base: Baseline) -> str:
        return (
            "from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_\n"
            "quantize_(model, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()))\n"
            "model = torch.compile(model)"
        )

    def apply(self, subject: Subject) -> Subject:
        return quantized.with_torchao(subject, "Float8DynamicActivationFloat8WeightConfig", granularity="PerRow")
