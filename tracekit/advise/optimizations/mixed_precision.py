"""Training with autocast: GEMMs in 16 bits, weights and sensitive sums in 32 bits."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.advise.optimization import FLAG, Optimization, refused
from tracekit.advise.optimizations.half_precision import half_type
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    Baseline,
    Extra,
    OpList,
    Outcome,
    Rows,
    moving,
    narrowed,
    now_in,
    pick,
    retimed,
    retimed_by_name,
    rows_in_precision,
    where,
    with_extras,
)
from tracekit.analyzers.results import Memory, Statements
from tracekit.capture import TORCH_NAMES

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_PRODUCTS = ("gemm", "convolution", "attention")
_FOLLOW = ("pointwise", "copy", "gather")
"""Families that compute in the dtype of their inputs, which GEMMs then produce in 16 bits."""
_WIDE = ("fp32", "tf32")
_KNOWN = outcomes(__file__)
_CAST_HOST = _KNOWN["cast_host"]
"""Host time of a cast that autocast adds, in plain launches."""
_FURTHER = _KNOWN["further"]
"""Host time of the casts beside that of the weight for each GEMM with weights, in plain launches: of the bias, the
other operand and the results of norms and sums, with their nodes of autograd and their way back."""
_BIAS = 16_384
"""Bytes of a bias of usual width, whose cast takes as long as its launch."""
_UNSCALED = "Gradients were not scaled: the gain is measured, and the loss may underflow without a GradScaler."
_KEPT = _KNOWN["kept"]
"""Activations kept, relative to training in 32 bits: inputs of GEMMs are halved, those of norms and losses are not."""


class MixedPrecision(Optimization):
    """Training with `torch.autocast`: GEMMs in 16 bits, weights, norms and losses in 32.

    The type is bf16 where the GPU supports it, otherwise fp16 with a `GradScaler`. It is recommended in place of
    `half-precision` where a run trains, because weights in 16 bits lose small updates. The prediction narrows GEMMs
    and the elementwise ops on their results, and adds the casts of each weight, and the host's time for those of
    biases, gradients and other operands, which slows steps that wait for the host. At the lower end, elementwise ops
    stay in 32 bits and all other operands are cast. Activations shrink to 0.65. Without shapes in the trace, the names
    of kernels (`sgemm`, `tf32`) show which GEMMs are in 32 bits, and only these are narrowed.

    *Hurts* small, host-bound models, because casts are additional launches.

    `tracekit verify` measures it in its own training loop, and around the forward pass of a script's model.
    """

    id = "mixed-precision"
    reads_costs = True
    excludes: Mapping[str, str] = {"half-precision": "its weights are in 16 bits, these stay in 32."}

    def objection(self, base: Baseline) -> str | None:
        if not base.trains:
            return "The run does not train: half-precision needs no autocast."
        if not _wide_products(base).any():
            return "The GEMMs are already in 16 bits."
        if not base.gpu.supports("fp16-tensor") and base.gpu.vendor == "nvidia":
            return f"{base.gpu.name} has no units for 16 bits."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        to = half_type(base.gpu)

        def changed(cost: Cost) -> Cost:
            follows = outcome != "worst" and cost.family in _FOLLOW
            return narrowed(cost, to) if cost.family in _PRODUCTS or follows else cost

        rows = (_wide_products(base) & base.ops.costed).nonzero()[0]
        casts = {int(row): _casts(base.ops.cost[row], outcome) for row in rows}
        ops = retimed_by_name(base, retimed(base.ops, changed, base.gpu, outcome), to, outcome)
        return with_extras(replace(base, ops=ops), {row: extras for row, extras in casts.items() if extras}, {})

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return now_in(super().applied(base, outcome), half_type(base.gpu))

    def reason(self, base: Baseline) -> Statements:
        precision = of_step("precision", "precision", half_type(base.gpu))
        return (say("mixed-precision", share_of(base, _wide_products(base)), precision),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _wide_products(base))

    def how_to(self, base: Baseline) -> str:
        to = half_type(base.gpu)
        forward = f'with torch.autocast("cuda", dtype=torch.{TORCH_NAMES[to]}):\n    loss = model(**inputs).loss'
        if to == "bf16":
            return f"{forward}\nloss.backward()  # with Trainer: TrainingArguments(bf16=True)"
        scaled = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
        return f'scaler = torch.amp.GradScaler("cuda")\n{forward}\n{scaled}'

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Add a 16-bit copy of the weights during the step, and shrink the activations."""
        kept = round(before.activations * pick(_KEPT, "expected"))
        return replace(before, activations=kept + before.weights // 2)

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        unscaled = (_UNSCALED,) if changes.half_type == "fp16" else ()
        return replace(changes, autocast=changes.half_type, caveats=(*changes.caveats, *unscaled))

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.training or subject.settings.dtype not in _WIDE:
            raise refused(self, "It is for training with weights in 32 bits.")
        return replace(subject, autocast=subject.half_type).with_own_weights()


def _wide_products(base: Baseline) -> Rows:
    known = where(base.ops, lambda cost: cost is not None and cost.family in _PRODUCTS and cost.precision in _WIDE)
    return known | rows_in_precision(base, *_WIDE)


def _casts(cost: Cost, outcome: Outcome) -> list[Extra]:
    """Return the casts around a GEMM: of a weight, which autocast caches during the step, or of its gradient, and of
    a bias; at worst also of its whole other operand."""
    host = pick(_CAST_HOST, outcome)
    weight = [Extra("aten::_to_copy", moving(cost.weight_bytes, cost.weight_bytes / 2, "fp32", "copy"), host=host)]
    others = max(cost.read_bytes - cost.weight_bytes, 0) if outcome == "worst" else _BIAS
    beside = host * (pick(_FURTHER, outcome) if cost.weight_bytes else 1.0)
    rest = [Extra("aten::_to_copy", moving(others, others / 2, "fp32", "copy"), host=beside)]
    casts_rest = others and (cost.weight_bytes or outcome == "worst")
    return (weight if cost.weight_bytes else []) + (rest if casts_rest else [])


class TF32(Optimization):
    """fp32 GEMMs on tensor cores, at the TF32 peak. The bytes stay the same.

    *Refused* on GPUs before compute capability 8.0.
    """

    id = "tf32"
    effort = FLAG
    reads_costs = True

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("tf32"):
            return f"{base.gpu.name} has no TF32 (it came with compute capability 8.0)."
        if not _fp32_products(base).any():
            return "No GEMM runs in fp32."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return retimed_by_name(base, retimed(base.ops, _with_tf32, base.gpu, outcome), "tf32", outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return now_in(super().applied(base, outcome), "tf32")

    def reason(self, base: Baseline) -> Statements:
        return (say("tf32", share_of(base, _fp32_products(base))),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _fp32_products(base))

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        if not changes.on_cuda:
            raise refused(self, "It applies only to GEMMs on tensor cores.")
        return replace(changes, tf32=True)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.on_cuda or subject.settings.dtype != "fp32":
            raise refused(self, "It applies only to fp32 GEMMs on tensor cores.")
        return replace(subject, settings=subject.settings.changed(dtype="tf32")).with_own_weights()


def _fp32_products(base: Baseline) -> Rows:
    return where(base.ops, _is_fp32_product) | rows_in_precision(base, "fp32")


def _is_fp32_product(cost: Cost | None) -> bool:
    return cost is not None and cost.family in ("gemm", "convolution") and cost.precision == "fp32"


def _with_tf32(cost: Cost) -> Cost:
    return replace(cost, precision="tf32") if _is_fp32_product(cost) else cost
