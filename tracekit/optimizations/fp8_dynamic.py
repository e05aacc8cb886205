"""fp8 GEMMs: weights are stored in fp8, and activations are scaled and cast row by row."""

from collections.abc import Mapping
from typing import Self

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import which
from tracekit.analyzers.transforms.extra_kernels import TORCHAO, Extra, moving
from tracekit.analyzers.transforms.linear_products import LinearProduct, linear_product
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.base import refused
from tracekit.optimizations.shared.dynamic_quantization import DynamicQuantization
from tracekit.optimizations.shared.weight_formats import from_pretrained, other_formats
from tracekit.subjects import quantized
from tracekit.subjects.subject import Subject

ROW_STREAM = Interval(0.6, 0.75, 1.0)
TENSOR_STREAM = Interval(0.35, 0.5, 0.8)
"""Rate of the GEMM relative to its model. With one scale per row it uses CUTLASS's kernel; with one scale per tensor
it uses cuBLASLt's, whose tiles are inefficient for few rows. From a published decode of Llama-3.1-8B on an H100."""

_CONFIG = "Float8DynamicActivationFloat8WeightConfig"
_FP16 = "torchao scales rows of bf16 weights, and these are fp16: load them in bf16, or use fp8-dynamic:per-tensor."


class FP8Dynamic(DynamicQuantization):
    """Weights in fp8, activations scaled and cast to fp8 before each GEMM (torchao).

    GEMMs run at 0.75 (0.6 to 1.0) of the fp8 rate, on tiles of at least 16 rows. Before each one, the input is
    scaled and cast row by row: seven launches in eager code and the host time of 45 (25 to 55) plain launches in
    torchao (245 µs per layer on an H200 host); compiled, one launch. `fp8-dynamic:per-tensor` uses one scale, a second
    reduction, and cuBLASLt's kernels (0.5 of the rate). torchao scales rows of bf16 weights only.

    *Hurts* with few rows (published: a decode of Llama-3.1-8B on an H100, 0.92 times as fast per tensor, 1.22 per row;
    the rates above are from it), and in host-bound steps.

    *Refused* before sm89, and for fp16 unless `per-tensor`.
    """

    id = "fp8-dynamic"
    title = "fp8 GEMMs, dynamic scales"
    aliases = ("fp8",)
    costs = Costs("weights a half of 16 bits", "a small loss: measure it", "a library")
    switches: Mapping[str, str] = {
        "vllm": "vllm serve MODEL --quantization fp8",
        "sglang": "python -m sglang.launch_server --model-path MODEL --quantization fp8",
    }
    precision = "fp8"
    needs = "float8-dynamic"
    dispatch = Interval(55.0, 45.0, 25.0)
    excludes: Mapping[str, str] = other_formats("fp8-dynamic")
    caveats = (
        "Compile with it: eager code quantises each input in seven kernels and much Python, compiled code in one.",
        "Few rows lose: the GEMM waits for a quantising kernel that takes as long as it saves.",
        "Outputs change in the second digit; check quality.",
    )

    def __init__(self, per_tensor: bool = False) -> None:
        self.per_tensor, self.granularity = per_tensor, "PerTensor" if per_tensor else "PerRow"
        self.stream = TENSOR_STREAM if per_tensor else ROW_STREAM

    def with_argument(self, argument: str) -> Self:
        if argument not in ("per-row", "per-tensor"):
            raise InputError(f"{argument!r} is not a granularity.", "", "Write fp8-dynamic:per-row or :per-tensor.")
        return type(self)(argument == "per-tensor")

    def objection(self, base: Baseline) -> str | None:
        fp16 = which(base.ops.cost, lambda cost: linear_product(cost) is not None and cost.precision == "fp16")
        return super().objection(base) or (_FP16 if fp16.any() and not self.per_tensor else None)

    def _before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        """Return the kernels before each GEMM.

        With a single scale, the largest element is found in two passes over the whole tensor.
        """
        passes = super()._before(product, outcome)
        second = Extra(TORCHAO + "amax", moving(4096, 4, "fp32", "reduction"))
        return [*passes[:2], second, *passes[2:]] if self.per_tensor else passes

    def how_to(self, base: Baseline) -> str:
        return from_pretrained(f"{_CONFIG}(granularity={self.granularity}())", also=self.granularity)

    def apply(self, subject: Subject) -> Subject:
        if subject.settings.dtype == "fp16" and not self.per_tensor:
            raise refused(self, _FP16)
        return quantized.with_torchao(subject, _CONFIG, granularity=self.granularity)
