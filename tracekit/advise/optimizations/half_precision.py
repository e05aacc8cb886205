"""Weights, activations and arithmetic in 16 bits: bfloat16 if the GPU supports it, else float16."""

from typing import TYPE_CHECKING, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple, replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.optimizations.attention_backends import preferred
from tracekit.advise.optimizations.fused_attention_fallback import fused_in_half
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import InputError, outcomes
from tracekit.analyzers.cost import GPU, Attention, Cost
from tracekit.analyzers.predict import (
    WIDE,
    Baseline,
    OpList,
    Outcome,
    Rows,
    experts_in_one_kernel,
    halved_at_best,
    in_phase,
    narrowed,
    now_in,
    pick,
    plain_launch_ns,
    remembered,
    retimed,
    retimed_by_name,
    rows_in_precision,
    saved_bytes,
    where,
    which,
    with_wide_parts,
)
from tracekit.analyzers.results import Memory, Statements
from tracekit.analyzers.trace import CaptureInfo
from tracekit.capture import TORCH_NAMES

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
HOST_FACTOR = _KNOWN["host_factor"]
"""Host time relative to fp32: other backends are chosen, with other checks."""
CUDNN_ATTENTION = _KNOWN["cudnn_attention"]
"""Host time of a call of cuDNN's attention beyond that of another backend while decoding, in plain launches: it looks
up its graph by sizes, and the number of keys grows."""
HalfType = Literal["fp16", "bf16"]
_TYPES: dict[str, HalfType] = {"fp16": "fp16", "bf16": "bf16"}
_PRODUCTS = ("gemm", "convolution", "attention")
_PADS = ("aten::copy_", "aten::constant_pad_nd")


class HalfPrecision(Optimization):
    """Weights, activations and arithmetic in 16 bits.

    Every 32-bit op moves half the bytes, GEMMs run at the 16-bit peak, and attention runs on the kernels that
    PyTorch prefers for 16 bits. `half-precision:fp16` and `half-precision:bf16` choose the type; the default is bf16
    where the GPU supports it, otherwise fp16.

    *Hurts* host-bound steps: other kernels are chosen with other checks (host time × 0.95 to 1.05). While
    decoding, each call of cuDNN's attention adds the host time of 8 (0 to 10) plain launches, 37 µs per layer of GPT-2
    on an H200 host, which makes the whole step 0.87 times as fast. Prefill and training did not show this. Norms that
    are written op by op and attention by PyTorch's math backend (T5) still compute in 32 bits, with two and five casts
    around each. Calls of `scaled_dot_product_attention` that fall back to that backend only in 32 bits (grouped heads)
    become one kernel.

    GEMMs of a mixture of experts are one kernel in bf16 on Hopper and later; in other dtypes, PyTorch reads the
    experts' sizes back and loops over them, which disappears.

    *Refused* if the GEMMs run in 16 bits already, or the GPU does not support bf16.
    """

    id = "half-precision"
    reads_costs = True

    def __init__(self, dtype: HalfType | None = None) -> None:
        self.dtype = dtype

    def with_argument(self, argument: str) -> Self:
        if argument not in _TYPES:
            raise InputError(
                f"{argument!r} is not a 16-bit dtype.", "", "Write half-precision:fp16 or half-precision:bf16."
            )
        return type(self)(_TYPES[argument])

    def unsuited(self, base: Baseline) -> Statements:
        return (say("mixed-precision-instead"),) if base.trains else ()

    def objection(self, base: Baseline) -> str | None:
        if self.type_on(base.gpu) == "bf16" and not base.gpu.supports("bf16"):
            return f"{base.gpu.name} has no bf16 (it came with compute capability 8.0): use half-precision:fp16."
        if _multiplies_in_half(base):
            return "The GEMMs are already in 16 bits."
        return None if _full_precision(base).any() else "No op processes 32-bit numbers."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        base = fused_in_half(base, outcome)
        to = self.type_on(base.gpu)
        ops = retimed(base.ops, lambda cost: _halved(cost, to, base.gpu), base.gpu, outcome)
        ops = halved_at_best(base, retimed_by_name(base, ops, to, outcome), outcome)
        host = ops.host_ns * pick(HOST_FACTOR, outcome) + attention_host_ns(base, outcome)
        return experts_in_one_kernel(base, with_wide_parts(base, ops.assign(host_ns=host)), outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return now_in(super().applied(base, outcome), self.type_on(base.gpu))

    def reason(self, base: Baseline) -> Statements:
        share = share_of(base, _full_precision(base))
        if _emulates(base):
            return (say("bf16-is-emulated", share, of_step("gpu", "name", base.gpu.name)),)
        return (say("half-precision", share, of_step("precision", "precision", self.type_on(base.gpu))),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _full_precision(base))

    def how_to(self, base: Baseline) -> str:
        return f"model = model.to(torch.{TORCH_NAMES[self.type_on(base.gpu)]})"

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, weights=self.dtype or changes.half_type)

    def apply(self, subject: "Subject") -> "Subject":
        if subject.settings.dtype not in WIDE:
            raise refused(self, "The weights are already in 16 bits.")
        return subject.with_dtype(self.dtype or subject.half_type)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Halve everything except the tensors that the model computes in 32 bits in any dtype."""
        if _emulates(base):
            return before
        half = Memory(*(size // 2 for size in astuple(before)))
        return replace(
            half,
            activations=half.activations + _kept_as_it_is(base) // 2,
            loss=before.loss if _loss_is_wide(base) else half.loss,
            workspaces=before.workspaces,
            buffers=before.buffers,
        )

    def settings(self, base: Baseline, capture: CaptureInfo) -> CaptureInfo:
        return msgspec.structs.replace(capture, dtype=self.type_on(base.gpu))

    def type_on(self, gpu: GPU) -> HalfType:
        return self.dtype or half_type(gpu)


def attention_host_ns(base: Baseline, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the host time that 16 bits add to each op, because fused attention uses cuDNN if PyTorch prefers it."""
    moves = where(base.ops, _is_wide_attention) & in_phase(base.ops, "decode")
    taken = preferred(base.gpu, half=True) == "cudnn"
    return np.where(moves, taken * pick(CUDNN_ATTENTION, outcome) * plain_launch_ns(base), 0.0)


def _is_wide_attention(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Attention) and cost.precision in WIDE


@remembered
def in_half(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with 32-bit ops in 16 bits, from which weight formats start.

    If the GEMMs are in 16 bits, so is the model, and casts of the program's own keep the rest in 32 bits.
    Attention that falls back to the math path in 16 bits still computes in 32 bits.
    """
    if _multiplies_in_half(base) or (base.fallback and base.fallback.precision in ("bf16", "fp16")):
        return base.ops
    base = fused_in_half(base, outcome)
    ops = retimed(base.ops, lambda cost: narrowed(cost, half_type(base.gpu)), base.gpu, outcome)
    ops = ops.assign(host_ns=ops.host_ns + attention_host_ns(base, outcome))
    return experts_in_one_kernel(base, with_wide_parts(base, ops), outcome)


def _multiplies_in_half(base: Baseline) -> bool:
    """Return whether most of the work of GEMMs and convolutions, or without these of attention, is in 16 bits."""
    known = [cost for cost in base.ops.cost if cost is not None and cost.family in _PRODUCTS]
    products = [cost for cost in known if cost.family != "attention"] or known
    wide = sum(cost.flops for cost in products if _is_wide(cost, base.gpu))
    return 2 * wide < sum(cost.flops for cost in products)


def half_type(gpu: GPU) -> HalfType:
    return "bf16" if gpu.supports("bf16") else "fp16"


@remembered
def _kept_as_it_is(base: Baseline) -> int:
    """Return the bytes kept for the backward pass that a narrower dtype does not change.

    These are the masks of dropouts, the squares of an unfused norm, and the log-probabilities of a loss in 32 bits.
    """
    saved = saved_bytes(base.ops)
    ops = base.ops[base.ops.positions(saved.index)]
    in_norms = (ops.name == "aten::pow") & which(ops.layer_type, lambda kind: kind.endswith("Norm"))
    of_loss = (ops.name == "aten::_log_softmax") & _loss_is_wide(base)
    return int(saved[in_norms | of_loss | (ops.name == "aten::native_dropout")].sum())


def _loss_is_wide(base: Baseline) -> bool:
    """Return whether the loss is computed in 32 bits.

    transformers computes a causal loss in 32 bits, on a copy of the logits, after padding the labels that it shifts.
    """
    forward = base.ops.name[base.ops.phase == "forward"]
    return bool(((forward[1:] == "aten::_log_softmax") & np.isin(forward[:-1], _PADS)).any())


def _halved(cost: Cost, to: HalfType, gpu: GPU) -> Cost:
    if cost.precision == "bf16" and _is_wide(cost, gpu):
        shape = replace(cost.work, backend="") if isinstance(cost.work, Attention) else cost.work
        return replace(cost, precision=to, work=shape)
    return narrowed(cost, to)


def _is_wide(cost: Cost, gpu: GPU) -> bool:
    """Return whether an op is computed in 32 bits, which includes bf16 on a GPU without bf16 units."""
    return cost.precision in WIDE or (cost.precision == "bf16" and not gpu.supports("bf16"))


def _emulates(base: Baseline) -> bool:
    """Return whether the run is in bf16 on a GPU without bf16 units."""
    return not base.gpu.supports("bf16") and any(cost.precision == "bf16" for cost in base.ops.cost if cost)


def _full_precision(base: Baseline) -> Rows:
    return where(base.ops, lambda cost: cost is not None and _is_wide(cost, base.gpu)) | rows_in_precision(base, *WIDE)
