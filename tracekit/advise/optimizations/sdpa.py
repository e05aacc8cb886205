"""Fused attention instead of an unfused softmax(QK^T)V, or other kernels for attention that is already fused."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import FLAG, Optimization, refused
from tracekit.advise.optimizations.attention_backends import (
    BACKENDS,
    PACKAGE,
    is_half,
    moved_to_backend,
    preferred,
    runs,
    with_package,
)
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import InputError, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, Attention, Cost, Precision, estimate_ns
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    Written,
    built_masks,
    changed,
    covered,
    distinct,
    pick,
    retimed,
    where,
    written_out,
)
from tracekit.analyzers.results import Statements
from tracekit.capture import EFFICIENT, beginning

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
HOST_KEPT = _KNOWN["host_kept"]
"""Host time of the fused call (its checks, its choice of a backend, the Python code before it), relative to that of the
ops that it replaces without additional copies."""
KERNEL_ERROR = _KNOWN["kernel_error"]
OF_PRODUCTS = _KNOWN["of_products"]
"""Time of fused attention of unknown shape, relative to that of its GEMMs, which also move the scores."""
_FUSED = "aten::scaled_dot_product_attention"


class SDPA(Optimization):
    """Attention as one fused op in place of GEMM, softmax and GEMM.

    The fused op never writes the scores to memory, in the forward and the backward pass. Its time is that of the
    kernels that PyTorch chooses: cuDNN on sm90 and sm100, flash attention from sm80, memory-efficient attention
    otherwise (a T4, or fp32). Copies that only the GEMMs need disappear: repeated keys and values of grouped heads,
    and heads laid out as one batch (an eighth of the time of BERT-large at batch 16). The mask that transformers builds
    once per forward pass also disappears (10 to 15 launches and a wait, 110 to 260 µs on an H200 host), except at the
    lower end of the interval, because a sliding window shorter than the text needs it. Attention without an added mask
    is assumed to be unmasked. The host time is 0.45 (0.2 to 0.8) of that of the replaced ops; traces of GPT-2, BERT,
    Llama-1B and Mistral-7B show 0.41 to 0.49. Where the trace records no shapes, unfused attention is found by names,
    and the fused op takes 0.4 (0.1 to 1) of the time of its GEMMs.

    `sdpa:flash`, `sdpa:efficient` and `sdpa:cudnn` choose the kernels, also for attention that is fused already.
    `sdpa:flash-attention-2` is the flash-attn package: an op in Python and, for padded sequences (before transformers 5
    for all), 16 launches and two waits that remove the padding and restore it.

    *Hurts* while decoding: kernels that do not split the keys (memory-efficient ones, or any with a mask) leave most of
    the GPU idle. At batch 1 the launches of the package cost more than they save (published: Mistral-7B on an A100,
    20.4 instead of 26.7 tokens per second).
    """

    id = "sdpa"
    effort = FLAG
    reads_costs = True

    def __init__(self, backend: str | None = None) -> None:
        self.backend = backend

    def with_argument(self, argument: str) -> Self:
        if argument not in BACKENDS:
            raise InputError(
                f"{argument!r} is not an attention backend.", "", f"Write sdpa, or sdpa: with {', '.join(BACKENDS)}."
            )
        return type(self)(argument)

    def objection(self, base: Baseline) -> str | None:
        half = _half(base)
        if self.backend and not runs(self.backend, base.gpu, half=half):
            return f"{base.gpu.name} has no {BACKENDS[self.backend].words} for these types."
        if preferred(base.gpu, half=half) is None:
            return f"{base.gpu.name} has no fused attention for these types."
        if self.backend == "efficient" and _grouped(base):
            return f"{beginning(EFFICIENT)} does not support grouped heads."
        if base.fallback is not None and written_out(base):
            return "It is already called, and fell back to its math path: see fused-attention-fallback."
        if written_out(base):
            return None
        if not self.backend or not _fused(base).any():
            return "Attention is already fused, or there is none."
        return "Attention already runs on these kernels." if self._runs_already(base) else None

    def _runs_already(self, base: Baseline) -> bool:
        if not self.backend or self.backend == PACKAGE:
            return False
        used = {cost.work.backend for cost in base.ops.cost[_fused(base)]}
        return used == {BACKENDS[self.backend].kernels}

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        switched = replace(base, ops=self._switched(base, outcome))
        switched = replace(switched, ops=_unmasked(switched, outcome).renumbered())
        joined = replace(switched, ops=self._joined(switched, outcome))
        return with_package(joined, _fused(joined), outcome) if self.backend == PACKAGE else joined.ops

    def _switched(self, base: Baseline, outcome: Outcome) -> OpList:
        """Move attention that is already fused to the chosen kernels."""
        rows = _fused(base)
        if self.backend is None or not rows.any():
            return base.ops
        return retimed(base.ops, lambda cost: self._fused_cost(cost, masked=False), base.gpu, outcome)

    def _joined(self, base: Baseline, outcome: Outcome) -> OpList:
        return self.joined(base, outcome, written_out(base))

    def joined(
        self, base: Baseline, outcome: Outcome, written: Sequence[Written], precision: Precision | None = None
    ) -> OpList:
        """Replace each unfused attention with one op; `precision` changes its dtype."""
        ordered = sorted(written, key=lambda each: each.begin)
        ops = _merged(base.ops, ordered)
        fused = np.isin(ops.index, base.ops.index[[each.begin for each in ordered]])
        masked = outcome == "worst" and _batch(base) > 1
        costs = [each.cost and _cast_to(self._fused_cost(each.cost, masked=masked), precision) for each in ordered]
        times = [_time(base, each, cost, outcome) for each, cost in zip(ordered, costs, strict=True)]
        return ops.assign(
            name=changed(ops.name, fused, _FUSED),
            category=changed(ops.category, fused, "kernel"),
            host_ns=np.where(fused, ops.host_ns * pick(HOST_KEPT, outcome), ops.host_ns),
            kernel_ns=changed(ops.kernel_ns, fused, times),
            launches=np.where(fused, 1, ops.launches),
            cost=changed(ops.cost, fused, costs),
        )

    def _fused_cost(self, cost: Cost, *, masked: bool) -> Cost:
        """Return the cost on the chosen kernels.

        While decoding, a mask for padding excludes kernels that split the keys.
        """
        if not isinstance(cost.work, Attention):
            return cost
        efficient = masked and self.backend is None and cost.work.queries == 1
        return moved_to_backend(cost, "efficient" if efficient else self.backend)

    def reason(self, base: Baseline) -> Statements:
        name = self.backend or preferred(base.gpu, half=_half(base)) or "efficient"
        kernels = of_step("kernels", "name", BACKENDS[name].words)
        written = covered(base)
        if not written.any():
            return (say("other-attention-kernels", share_of(base, _fused(base)), kernels),)
        return (say("attention-written-out", share_of(base, written), kernels),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, covered(base))

    def how_to(self, base: Baseline) -> str:
        if self.backend == PACKAGE:
            return 'model = AutoModel.from_pretrained(name, attn_implementation="flash_attention_2")'
        sdpa = 'model = AutoModel.from_pretrained(name, attn_implementation="sdpa")'
        if self.backend is None:
            return sdpa
        only = f"with torch.nn.attention.sdpa_kernel(SDPBackend.{BACKENDS[self.backend].enum}):"
        return f"{sdpa}\n{only}\n    model(**inputs)"

    def apply(self, subject: "Subject") -> "Subject":
        """Switch attention; a named backend is then the only one that is allowed."""
        written = subject.settings.attention == "eager"
        if not written and not self.backend:
            raise refused(self, "Attention is already fused.")
        exchanged = written or self.backend == PACKAGE
        changed = self._exchanged(subject) if exchanged else subject.with_own_weights()
        settings = changed.settings.changed(attention="sdpa")
        return replace(changed, settings=settings, named_backend=BACKENDS[self.backend].enum if self.backend else "")

    def _exchanged(self, subject: "Subject") -> "Subject":
        changed = subject.with_twin()
        model: Any = changed.model
        if not hasattr(model, "set_attn_implementation"):
            raise refused(self, "It is not a transformers model: call scaled_dot_product_attention in its attention.")
        model.set_attn_implementation("flash_attention_2" if self.backend == PACKAGE else "sdpa")
        return changed


def _time(base: Baseline, each: Written, cost: Cost | None, outcome: Outcome) -> float:
    """Return the kernel time of the fused op with this cost; without shapes, by that of the GEMMs."""
    if cost is not None:
        return estimate_ns(cost, base.gpu) * pick(KERNEL_ERROR, outcome)
    return float(base.ops.kernel_ns[list(each.products)].sum()) * pick(OF_PRODUCTS, outcome)


def _unmasked(base: Baseline, outcome: Outcome) -> OpList:
    """Remove the masks of unfused attention.

    At worst they stay, because a sliding window shorter than the text needs one.
    """
    return base.ops if outcome == "worst" else base.ops[~built_masks(base)]


def _merged(ops: OpList, attentions: Sequence[Written]) -> OpList:
    """Replace the rows of each attention with its first row, which gets their host time without additional copies."""
    gone, host = np.zeros(len(ops), dtype=bool), ops.host_ns.copy()
    for each in attentions:
        gone[each.begin + 1 : each.end + 1] = True
        host[each.begin + 1 : each.first] = host[each.last + 1 : each.end + 1] = 0.0
    kept = np.flatnonzero(~gone)
    return ops[kept].assign(host_ns=np.add.reduceat(host, kept))


def _cast_to(cost: Cost, precision: Precision | None) -> Cost:
    if precision is None or precision == cost.precision:
        return cost
    ratio = ELEMENT_BYTES[precision] / ELEMENT_BYTES[cost.precision]
    read, written = round(cost.read_bytes * ratio), round(cost.write_bytes * ratio)
    return replace(cost, precision=precision, read_bytes=read, write_bytes=written)


def _half(base: Baseline) -> bool:
    return any(cost is not None and is_half(cost) for cost in base.ops.cost)


def _batch(base: Baseline) -> int:
    return base.source.capture.batch_size if base.source.capture else 0


def _grouped(base: Baseline) -> bool:
    """Return whether heads that are already fused share keys; in unfused attention, the keys were repeated before."""
    shapes = (cost.work for cost in distinct(base.ops.cost))
    return any(isinstance(shape, Attention) and shape.heads > shape.kv_heads for shape in shapes)


def _fused(base: Baseline) -> Rows:
    return where(base.ops, lambda cost: cost is not None and isinstance(cost.work, Attention))
