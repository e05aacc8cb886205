"""Fused attention in place of softmax(QK^T)V written out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.costs.call import Attention, Cost, Gemm
from analyzers.interval import Interval
from analyzers.kernel_time import estimate_ns
from analyzers.prediction.baseline import Baseline
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Optimization, Outcome, percent, pick, refused, share

REACH = 8
"""How many ops may lie between the softmax and each of its two products (scale, mask, cast, dropout)."""
HOST_KEPT = Interval(1.05, 0.85, 0.6)
"""Host time of the fused call over that of the ops it replaces: its checks and choice of a backend cost, too."""
KERNEL_ERROR = Interval(1.3, 1.0, 0.8)
_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class Written:
    """One attention written out: rows of the op list from its first product to its last."""

    first: int
    last: int
    cost: Cost


class SDPA(Optimization):
    id = "sdpa"
    title = "Scaled dot-product attention"
    caveats = ("A short decode can lose 1 to 3 %: the fused call has more checks than it saves launches.",)

    def objection(self, base: Baseline) -> str | None:
        if backend(base) is None:
            return f"{base.gpu.name} has no fused attention for these types."
        if not written_out(base):
            return "Attention is fused already, or there is none."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        found = written_out(base)
        gone = np.zeros(len(base.ops), dtype=bool)
        for attention in found:
            gone[attention.first + 1 : attention.last + 1] = True
        kept = np.flatnonzero(~gone)
        fused = np.isin(kept, [attention.first for attention in found])
        ops = base.ops.iloc[kept]
        host, kernel = np.add.reduceat(base.ops.host_ns.to_numpy(), kept), ops.kernel_ns.to_numpy(copy=True)
        kernel[fused] = [estimate_ns(attention.cost, base.gpu) * pick(KERNEL_ERROR, outcome) for attention in found]
        cost = ops.cost.copy()
        cost[fused] = [attention.cost for attention in found]
        return ops.assign(
            host_ns=np.where(fused, host * pick(HOST_KEPT, outcome), host),
            kernel_ns=kernel,
            launches=np.where(fused, 1, ops.launches),
            cost=cost,
        )

    def reason(self, base: Baseline) -> str:
        rows = pd.Series(False, index=base.ops.index)
        for found in written_out(base):
            rows.iloc[found.first : found.last + 1] = True
        return (
            f"{percent(share(base, rows))} of the kernel time is attention written out op by op; "
            f"{backend(base)} never writes the scores to memory."
        )

    def how_to(self, base: Baseline) -> str:
        return 'model = AutoModel.from_pretrained(name, attn_implementation="sdpa")'

    def apply(self, subject: Subject) -> Subject:
        if subject.settings.attention != "eager":
            raise refused(self, "Attention is fused already.")
        changed = subject.with_twin()
        model: Any = changed.model
        if not hasattr(model, "set_attn_implementation"):
            raise refused(self, "The model is not of transformers: call scaled_dot_product_attention in its attention.")
        model.set_attn_implementation("sdpa")
        return replace(changed, settings=replace(changed.settings, attention="sdpa"))


def backend(base: Baseline) -> str | None:
    """The fused attention that PyTorch picks on this GPU for the run's types."""
    half = base.ops.cost.map(lambda cost: bool(cost) and cost.precision in ("fp16", "bf16")).any()
    if half and base.gpu.supports("flash-attention"):
        return "flash attention"
    return "memory-efficient attention" if base.gpu.supports("efficient-attention") else None


def written_out(base: Baseline) -> list[Written]:
    """Every batched product, softmax, batched product over matching shapes."""
    costs = base.ops.cost.to_list()
    softmaxes = [i for i, cost in enumerate(costs) if cost and cost.family == "softmax"]
    found = (_around(costs, i) for i in softmaxes)
    return [attention for attention in found if attention]


def _around(costs: list[Cost | None], softmax: int) -> Written | None:
    before = next((i for i in range(softmax - 1, max(softmax - REACH, -1), -1) if _batched(costs[i])), None)
    after = next((i for i in range(softmax + 1, min(softmax + REACH, len(costs))) if _batched(costs[i])), None)
    if before is None or after is None:
        return None
    scores, values = costs[before], costs[after]
    assert scores and values and isinstance(scores.shape, Gemm) and isinstance(values.shape, Gemm)
    if (scores.shape.m, scores.shape.n) != (values.shape.m, values.shape.k):
        return None
    return Written(before, after, _attention(scores.shape, scores))


def _batched(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.shape, Gemm) and cost.weight_bytes == 0


def _attention(scores: Gemm, cost: Cost) -> Cost:
    causal = scores.m == scores.n
    shape = Attention(1, scores.batch, scores.batch, scores.m, scores.n, scores.k, causal)
    element = _ELEMENT.get(cost.precision, 4)
    return Cost(
        flops=4 * scores.batch * scores.m * scores.n * scores.k // (2 if causal else 1),
        read_bytes=element * scores.batch * scores.k * (scores.m + 2 * scores.n),
        write_bytes=element * scores.batch * scores.m * scores.k,
        family="attention",
        precision=cost.precision,
        shape=shape,
    )
