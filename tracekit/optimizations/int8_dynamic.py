"""int8 GEMMs: weights are stored in int8, and activations are scaled and cast row by row."""

from collections.abc import Mapping

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.extra_kernels import TORCHAO, Extra, moving
from tracekit.analyzers.transforms.linear_products import LinearProduct
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.shared.dynamic_quantization import DynamicQuantization
from tracekit.optimizations.shared.weight_formats import from_pretrained, other_formats
from tracekit.subjects import quantized
from tracekit.subjects.subject import Subject

FEWEST_ROWS = 17
"""torch._int_mm needs more than 16 rows. With fewer, weights are widened, and the GEMM is computed in int32
without tensor cores."""

INT_MM = Interval(110.0, 75.0, 30.0)
"""Host time around torch._int_mm in eager code, in plain launches: layers of Llama-1B and Mistral-7B take 440 and
580 us more for 512 rows than for one, on the host of an H200."""
_FALLBACK_BYTES = 16
"""Bytes written and read per weight in that case: widened to int32 (4), times the input (4 read, 4 written), summed
(4 read)."""


class Int8Dynamic(DynamicQuantization):
    """Weights in int8, activations scaled and cast to int8 before each GEMM (torchao).

    As fp8-dynamic, with two more launches that scale the int32 sums, the host time of 130 (80 to 170) plain launches in
    torchao, and of 75 (30 to 110) more around the int8 GEMM (700 and 1,100 to 1,300 µs per layer on an H200 host).
    For up to 16 rows there is no int8 GEMM: the weights are widened to int32, multiplied and summed, 16 bytes per
    weight.

    *Hurts* while decoding (published: 0.09 times as fast).
    """

    id = "int8-dynamic"
    title = "int8 GEMMs, dynamic scales"
    costs = Costs("weights a half of 16 bits", "a small loss: measure it", "a library")
    precision = "int8"
    needs = "int8-tensor"
    dispatch = Interval(170.0, 130.0, 80.0)
    stream = Interval(0.6, 0.8, 1.0)
    excludes: Mapping[str, str] = other_formats("int8-dynamic")
    caveats = (
        "Compile with it: eager code quantises each input in seven kernels and much Python, and scales in two.",
        f"Fewer than {FEWEST_ROWS} rows (decoding) have no int8 GEMM, and lose by far.",
    )

    def _before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        quantise = super()._before(product, outcome)
        if product.rows >= FEWEST_ROWS:
            entered = Extra(quantise[-1].name, quantise[-1].cost, host=quantise[-1].host + pick(INT_MM, outcome))
            return [*quantise[:-1], entered]
        widened = moving(product.weights, _FALLBACK_BYTES * product.weights, "fp32", "other")
        return [*quantise, Extra(TORCHAO + "mul (int32)", widened)]

    def _after(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        """Return the kernels that multiply the int32 sums by the scales of rows and weights."""
        out = product.rows * product.outputs
        return [
            Extra(TORCHAO + "mul", moving(4 * out, 4 * out, "fp32")),
            Extra(TORCHAO + "mul", moving(4 * out, 2 * out, "bf16")),
        ]

    def how_to(self, base: Baseline) -> str:
        return from_pretrained("Int8DynamicActivationInt8WeightConfig()")

    def apply(self, subject: Subject) -> Subject:
        return quantized.with_torchao(subject, "Int8DynamicActivationInt8WeightConfig")
