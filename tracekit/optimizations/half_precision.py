"""Weights, activations and arithmetic in 16 bits: bfloat16 where the GPU has it, else float16."""

from typing import Literal

import pandas as pd

from analyzers.hardware import GPU
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.optimizations.base import Optimization, Outcome, percent, pick, share
from tracekit.optimizations.retime import narrowed, retimed

HOST_FACTOR = Interval(1.08, 1.0, 0.98)
"""Host time over that in fp32: other backends are chosen, with other checks. Published: 0.95 to 1.04 times as fast
where the host sets the pace."""
_WIDE = ("fp32", "tf32")


class HalfPrecision(Optimization):
    id = "half-precision"
    title = "Half precision"
    caveats = (
        "Outputs change in the third digit; compare them before you ship.",
        "A run that waits for its host gains nothing: fewer bytes do not launch kernels sooner.",
    )

    def objection(self, base: Baseline) -> str | None:
        products = [cost for cost in base.ops.cost if cost and cost.family in ("gemm", "convolution", "attention")]
        wide = sum(cost.flops for cost in products if cost.precision in _WIDE)
        if 2 * wide < sum(cost.flops for cost in products):
            return "The matrix products are in 16 bits already."
        return None if _full_precision(base).any() else "Nothing works on 32-bit numbers."

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        ops = retimed(base.ops, lambda cost: narrowed(cost, half_type(base.gpu)), base.gpu, outcome)
        return ops.assign(host_ns=ops.host_ns * pick(HOST_FACTOR, outcome))

    def reason(self, base: Baseline) -> str:
        part = percent(share(base, _full_precision(base)))
        return f"{part} of the kernel time works on 32-bit numbers; {half_type(base.gpu)} halves their bytes."

    def how_to(self, base: Baseline) -> str:
        name = {"fp16": "float16", "bf16": "bfloat16"}[half_type(base.gpu)]
        return f"model = model.to(torch.{name})"


def half_type(gpu: GPU) -> Literal["fp16", "bf16"]:
    return "bf16" if gpu.supports("bf16") else "fp16"


def _full_precision(base: Baseline) -> "pd.Series[bool]":
    return base.ops.cost.map(lambda cost: bool(cost) and cost.precision in _WIDE).astype(bool)
