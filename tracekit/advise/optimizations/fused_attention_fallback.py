"""Replaces the math path of scaled_dot_product_attention by a fused kernel."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.optimizations.attention_backends import BACKENDS, is_half, preferred
from tracekit.advise.optimizations.sdpa import SDPA
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.cost import ELEMENT_BYTES, Access, Attention, Cost, Precision
from tracekit.analyzers.predict import (
    Baseline,
    Cause,
    Extra,
    OpList,
    Outcome,
    Rows,
    Written,
    moving,
    with_extras,
    written_out,
)
from tracekit.analyzers.results import Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_COPY = "aten::copy_"
_AROUND = {_COPY, "aten::mul", "aten::div", "aten::fill_", "aten::tril", "aten::where", "aten::masked_fill_"}
"""Ops of the math path before its first GEMM: casts to 32 bits, scales, and the causal mask."""
_FIXES: dict[Cause, str] = {
    "bf16": "model = model.half()  # this GPU has no bf16: fused kernels take fp16",
    "grouped-heads": (
        "key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # one key head for each query head\n"
        "value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)"
    ),
    "mixed-types": "key, value = key.to(query.dtype), value.to(query.dtype)",
    "layout": "query, key, value = (each.contiguous() for each in (query, key, value))",
    "head-dim": (
        "query, key, value = (F.pad(each, (0, -each.shape[-1] % 8)) for each in (query, key, value))\n"
        "output = F.scaled_dot_product_attention(query, key, value, scale=head_dim**-0.5)[..., :head_dim]"
    ),
    "mask": "mask = F.pad(mask, (0, -mask.shape[-1] % 8))[..., : key.shape[-2]]  # rows aligned to 16 bytes",
    "unknown": (
        "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):\n"
        "    model(**inputs)  # the warnings say what keeps each kernel out"
    ),
}
_WHY: dict[Cause, str] = {
    "bf16": "this GPU has no bf16",
    "grouped-heads": "keys have fewer heads than queries, which its fused kernels do not take here",
    "mixed-types": "queries, keys and values are of different types",
    "layout": "the last dimension is not contiguous",
    "head-dim": "the head size is not a multiple of 16 bytes",
    "mask": "the rows of the mask are not a multiple of 16 bytes",
    "unknown": "a reason that the trace does not record",
}


class FusedAttentionFallback(Optimization):
    """A fused kernel for calls of `scaled_dot_product_attention` that PyTorch runs by its math path.

    The math path stores the scores; the trace shows it as `aten::_scaled_dot_product_attention_math` (a modelled run:
    its settings). The cause follows from types, shapes and strides of the call, by the conditions in PyTorch's
    `sdp_utils.cpp`: bf16 on a GPU without it, grouped heads where only the memory-efficient kernel is left, operands of
    different types, a last dimension that is not contiguous, or a head size or rows of a mask that are no multiple of
    16 bytes. The prediction is that of `sdpa`, in the type of the call, without the casts and masks of the math path,
    and with copies of keys and values where heads are repeated, or of the operands that change their layout.

    *Refused* if no call fell back, or the GPU has no fused kernel for the types.
    """

    id = "fused-attention-fallback"
    fixes_mistake = True

    def objection(self, base: Baseline) -> str | None:
        if base.fallback is None or not written_out(base):
            return "No call of scaled_dot_product_attention fell back to its math path."
        return None if _kernels(base) else f"{base.gpu.name} has no fused attention for these types."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        fused = SDPA().joined(base, outcome, _math_path(base), self._fixed_dtype(base))
        return with_extras(replace(base, ops=fused), self._copies(base, fused, outcome), {})

    def _fixed_dtype(self, base: Baseline) -> Precision | None:
        """Return the dtype after the fix, because the math path widens 16-bit operands; None for no change."""
        if base.fallback is None or base.fallback.cause == "bf16":
            return "fp16"
        return base.fallback.precision

    def _copies(self, base: Baseline, ops: OpList, outcome: Outcome) -> dict[int, list[Extra]]:
        """Return the copies that the fix adds: keys and values for each query head, or operands in another layout."""
        assert base.fallback is not None
        fused = {row: cost for row, cost in enumerate(ops.cost) if cost and isinstance(cost.work, Attention)}
        if base.fallback.cause == "grouped-heads":
            group = max(2, base.fallback.group)
            return {row: [_repeat(cost, group)] * 2 for row, cost in fused.items()}
        if base.fallback.cause == "layout":
            return {row: [_turn(cost, outcome)] * base.fallback.strided for row, cost in fused.items()}
        return {}

    def reason(self, base: Baseline) -> Statements:
        assert base.fallback is not None
        why = of_step("why", "name", _WHY[base.fallback.cause])
        kernels = of_step("kernels", "name", BACKENDS[_kernels(base) or "efficient"].words)
        return (say("attention-fell-back", share_of(base, _rows(base)), why, kernels),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _rows(base))

    def how_to(self, base: Baseline) -> str:
        return _FIXES[base.fallback.cause if base.fallback else "unknown"]

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "The call is in the model's own code.")


def fused_in_half(base: Baseline, outcome: Outcome) -> Baseline:
    """Return the run with one op for each call that falls back in 32 bits, but would not in 16."""
    if base.fallback is None or not base.fallback.fixed_by_half:
        return base
    return replace(base, ops=SDPA().joined(base, outcome, _math_path(base)), fallback=None)


def _kernels(base: Baseline) -> str | None:
    """Return the backend that runs the calls once their cause is removed."""
    known = base.fallback.precision if base.fallback else None
    half = any(cost is not None and is_half(cost) for cost in base.ops.cost) if known is None else known != "fp32"
    return preferred(base.gpu, half=half)


def _math_path(base: Baseline) -> list[Written]:
    """Return the unfused attention with the casts, scales and masks that the math path adds."""
    names = base.ops.name.tolist()
    return [_widened(each, names) for each in written_out(base)]


def _widened(each: Written, names: list[str]) -> Written:
    begin, end = each.begin, each.end
    while begin > 0 and names[begin - 1] in _AROUND:
        begin -= 1
    while end + 1 < len(names) and names[end + 1] == _COPY:
        end += 1
    return replace(each, begin=begin, end=end)


def _rows(base: Baseline) -> Rows:
    rows = np.zeros(len(base.ops), dtype=bool)
    for each in _math_path(base):
        rows[each.begin : each.end + 1] = True
    return rows


def _repeat(cost: Cost, group: int) -> Extra:
    size = _keys_bytes(cost)
    return Extra("aten::repeat_interleave", moving(size / group, size, cost.precision, "copy"))


def _turn(cost: Cost, outcome: Outcome) -> Extra:
    """Return a copy that changes the order of the last dimensions; at best it is as fast as a plain copy."""
    size = _keys_bytes(cost)
    access: Access = "linear" if outcome == "best" else "transposed"
    return Extra(_COPY, replace(moving(size, size, cost.precision, "copy"), access=access))


def _keys_bytes(cost: Cost) -> float:
    """Return the bytes of keys for each query head."""
    shape = cost.work
    assert isinstance(shape, Attention)
    return ELEMENT_BYTES[cost.precision] * shape.batch * shape.heads * shape.keys * shape.head_dim
