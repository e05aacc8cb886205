"""Weights stored in 8 or 4 bits and widened inside the matrix product."""

from dataclasses import replace
from typing import ClassVar

import pandas as pd

from analyzers.costs.call import Cost, Gemm
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import Memory
from tracekit.optimizations.base import Optimization, Outcome, percent, pick, share
from tracekit.optimizations.linear_products import shrunk, stored_bytes
from tracekit.optimizations.retime import retimed

MAX_TOKENS = 64
"""Above so many rows a product is no longer bound by reading weights."""
MIN_WEIGHTS = 4_000_000
"""Below so many weights the unpacking costs more than the bytes saved (measured: 0.42x at 0.5 to 4 million)."""


class WeightOnly(Optimization):
    """Shared by the widths: `bits` a weight."""

    bits: ClassVar[int]
    needs: ClassVar[str]
    """The GPU feature that its kernels are written for."""
    efficiency: ClassVar[Interval]
    """Bandwidth of the unpacking product over that of the plain one."""

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports(self.needs):
            return f"{base.gpu.name} has no kernels for it."
        products = base.ops.cost.map(_reads_weights).astype(bool)
        if not products.any():
            return "No matrix product of the run reads weights in 16 bits (quantize from half precision)."
        if not (products & base.ops.cost.map(_few_tokens).astype(bool)).any():
            return f"Every product has more than {MAX_TOKENS} rows: reading weights is not what takes the time."
        if not _gains(base).any():
            small = f"under {MIN_WEIGHTS / 1e6:.0f} million weights"
            return f"Its layers are small ({small}) or not nn.Linear: unpacking costs more than it saves."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        rows = _gains(base)
        smaller = retimed(base.ops[rows], self._quantized, base.gpu, outcome)
        kernel = base.ops.kernel_ns.copy()
        kernel[rows] = smaller.kernel_ns / pick(self.efficiency, outcome)
        return base.ops.assign(kernel_ns=kernel)

    def _quantized(self, cost: Cost) -> Cost:
        weights = cost.weight_bytes * self.bits // 16
        return replace(cost, read_bytes=cost.read_bytes - cost.weight_bytes + weights, weight_bytes=weights)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return shrunk(before, stored_bytes(base, _gains(base)), self.bits / 16)

    def reason(self, base: Baseline) -> str:
        part = percent(share(base, _gains(base)))
        return f"{part} of the kernel time reads weights, which shrink {16 // self.bits}-fold."


def _reads_weights(cost: Cost | None) -> bool:
    return cost is not None and cost.weight_bytes > 0 and cost.precision in ("fp16", "bf16")


def _few_tokens(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.shape, Gemm) and min(cost.shape.m, cost.shape.n) <= MAX_TOKENS


def _gains(base: Baseline) -> "pd.Series[bool]":
    """Products worth quantizing: of nn.Linear, with few rows and many weights."""

    def worth(cost: Cost | None) -> bool:
        return _reads_weights(cost) and _few_tokens(cost) and cost is not None and cost.weight_bytes >= 2 * MIN_WEIGHTS

    return base.ops.cost.map(worth).astype(bool) & (base.ops.layer_type != "Conv1D")
