"""Convolutions in channels-last layout, and GEMMs padded to whole vectors."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost, Norm, Product, is_unaligned, multiple_of, padded, rounded_up, vectors
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, products, retimed, where, which
from tracekit.analyzers.results import Evidence, Statements
from tracekit.run import require

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_OVER_IMAGES = re.compile(r"conv(?:_transpose)?[23]d|convolution")
_KNOWN = outcomes(__file__)
_LEFT_OUT = _KNOWN["left_out"]
"""Fraction of the layout copies that disappears."""


_MANY_NORMS = 0.05
"""Fraction of the kernel time from which the reason names norms."""


class ChannelsLast(Optimization):
    """Images and convolution weights in memory with their channels last (`torch.channels_last`).

    cuDNN's kernels on tensor cores read channels last, and copy inputs, weights and results with channels first
    to that layout and back. The prediction removes these copies: in a measured trace the kernels with their names, in a
    modelled one their modelled time. Norms over channels take the modelled time of their kernels for this layout;
    PyTorch's own, in bf16, without shapes 0.6 (0.45 to 0.75) of theirs, backward 0.32 (0.2 to 0.5).

    Measured on an H100, 32 images: ResNet-50 1.09 (predicted 0.97 to 1.14) in bf16, 1.05 in fp32 (0.97 to 1.12),
    RegNet-Y 4GF 1.08 in fp16 (0.97 to 1.03). All three wait for their host, which then launches less.

    *Refused* if no convolution copies its tensors, and for convolutions over sequences (`conv1d`).
    """

    id = "channels-last"
    excludes: Mapping[str, str] = dict.fromkeys(("compile", "max-autotune"), "compiled code chooses the layout itself.")

    def objection(self, base: Baseline) -> str | None:
        if not which(base.ops.call, _OVER_IMAGES.search).any():
            return "The run has no convolution over images."
        if not _copying(base).any():
            return "No convolution copies its tensors from one layout to the other."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        if base.source.kind == "modelled":
            return retimed(base.ops, _channels_last, base.gpu, outcome)
        kernel_ns = base.ops.kernel_ns - pick(_LEFT_OUT, outcome) * _copies_ns(base)
        ops = base.ops.assign(kernel_ns=kernel_ns * _of_unknown_norms(base, outcome))
        return retimed(ops, _norm_channels_last, base.gpu, outcome)

    def reason(self, base: Baseline) -> Statements:
        convolutions = share_of(base, _copying(base), "convolutions")
        if base.source.kind == "modelled":
            return (say("channels-last-modelled", convolutions),)
        copies = Evidence("copies", float(_copies_ns(base).sum() / max(base.busy_ns, 1.0)), "ops", "share", "")
        norms = _norms_channels_first(base)
        many = base.ops.kernel_ns[norms].sum() >= _MANY_NORMS * base.busy_ns
        and_norms = (say("channels-last-norms", share_of(base, norms, "norms")),) if many else ()
        return (say("channels-last", convolutions, copies), *and_norms)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _copying(base))

    def how_to(self, base: Baseline) -> str:
        calls = " ".join(set(base.ops.call[_copying(base)]))
        volumes = "3d" in calls and "2d" not in calls
        return self.recipe.replace("channels_last", "channels_last_3d") if volumes else self.recipe

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, channels_last=True)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.on_cuda:
            raise refused(self, "It applies only to cuDNN's convolutions.")
        from tracekit.apply import twin  # only to run a model

        model: Any = twin(subject.model, share=False)
        return replace(subject, model=model.to(memory_format=require("torch").channels_last))


def _copying(base: Baseline) -> Rows:
    """Select the convolutions over images that copy their tensors from one layout to the other."""
    modelled = base.source.kind == "modelled"
    copies = where(base.ops, _is_copied) if modelled else base.recorded.layout_shares(base.ops) > 0
    return np.asarray(copies & ~which(base.ops.call, lambda call: "1d" in call))


def _copies_ns(base: Baseline) -> npt.NDArray[np.float64]:
    """Return the recorded time of the layout copies of each of these convolutions, in nanoseconds."""
    return base.ops.kernel_ns * base.recorded.layout_shares(base.ops) * _copying(base)


def _of_unknown_norms(base: Baseline, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the fraction of the time of batch norms, whose sizes the trace does not record, that they take with
    channels last; 1 for other ops."""
    norms, back = base.recorded.norms_channels_first(base.ops), in_phase(base.ops, "backward")
    kept = np.where(back, pick(_KNOWN["norm_backward"], outcome), pick(_KNOWN["norm"], outcome))
    return np.where(norms, kept, 1.0)


def _norms_channels_first(base: Baseline) -> Rows:
    """Select the batch norms that train with channels first, by shapes or names."""
    known = where(base.ops, lambda cost: cost is not None and _norm_channels_last(cost) != cost)
    return np.asarray(known | base.recorded.norms_channels_first(base.ops))


def _is_copied(cost: Cost | None) -> bool:
    return cost is not None and cost.family == "convolution" and cost.access == "transposed"


def _channels_last(cost: Cost) -> Cost:
    return replace(cost, access="linear") if _is_copied(cost) else _norm_channels_last(cost)


def _norm_channels_last(cost: Cost) -> Cost:
    if not isinstance(cost.work, Norm) or not cost.work.channels or cost.work.grouped:
        return cost
    return replace(cost, work=msgspec.structs.replace(cost.work, channels_last=True))


_NOTABLE = 0.01
"""Fraction of the kernel time in kernels with unaligned names above which the names confirm the shapes."""
_VOCABULARY = 8192
"""A side of a GEMM with weights that is at least this long is a vocabulary."""


class PadShapes(Optimization):
    """Vocabulary, sequence or hidden size padded to multiples of 16 bytes.

    GEMMs in 16 bits whose rows are not a multiple of 16 bytes load one or two elements at a time
    (`cutlass_…_align1`, `align2`). The prediction is the modelled time of the GEMM with padded sides over that of
    the unpadded GEMM. In measured traces the names of the kernels must confirm it; without shapes, they are the only
    evidence.

    *Refused* if the kernels load whole vectors although the shapes are odd, because strides may be padded already.
    """

    id = "pad-shapes"
    reads_costs = True
    fixes_mistake = True

    def objection(self, base: Baseline) -> str | None:
        if not _unaligned(base).any():
            return "All GEMMs on tensor cores have rows that are multiples of 16 bytes."
        if base.running.unaligned is not None and base.running.unaligned < _NOTABLE:
            return "The kernels of its GEMMs load whole vectors."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        def changed(cost: Cost) -> Cost:
            return padded(cost) if is_unaligned(cost, base.gpu) else cost

        return products.aligned(base, retimed(base.ops, changed, base.gpu, outcome), outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return products.now_aligned(super().applied(base, outcome))

    def reason(self, base: Baseline) -> Statements:
        if not _rows_by_shapes(base).any():
            return (say("pad-shapes-by-name", share_of(base, _unaligned(base))),)
        side, even = _odd_side(_largest(base))
        sizes = of_step("side", "rows", side), of_step("padded", "rows", even)
        return (say("pad-shapes", share_of(base, _unaligned(base)), *sizes),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _unaligned(base))

    def how_to(self, base: Baseline) -> str:
        if not _rows_by_shapes(base).any():
            return "size = -(-size // 8) * 8  # sizes of GEMMs as multiples of 8"
        largest_product = _largest(base)
        side, even = _odd_side(largest_product)
        if largest_product.weight_bytes and side >= _VOCABULARY:
            return f"model.resize_token_embeddings({even}, pad_to_multiple_of=64)  # {side} before"
        if largest_product.weight_bytes:
            return f"width = {even}  # {side} before: choose sizes that are multiples of 8"
        return f"inputs = F.pad(inputs, (0, 0, 0, {even - side}))  # a length of {even}, not {side}; mask the rest"

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "Sizes are set in the model's own code: change them there, and compare the two traces.")


def _unaligned(base: Baseline) -> Rows:
    return _rows_by_shapes(base) | products.unaligned(base)


def _rows_by_shapes(base: Baseline) -> Rows:
    return where(base.ops, lambda cost: cost is not None and is_unaligned(cost, base.gpu))


def _largest(base: Baseline) -> Cost:
    """Return the unaligned GEMM with the most FLOPs."""
    cost: Cost = max(base.ops.cost[_rows_by_shapes(base)], key=lambda cost: cost.flops)
    return cost


def _odd_side(cost: Cost) -> tuple[int, int]:
    """Return the longest side that is not a multiple, and the next multiple."""
    assert isinstance(cost.work, Product)
    multiple = multiple_of(cost)
    side = max((side for side in vectors(cost.work) if side % multiple), default=cost.work.n)
    return side, rounded_up(side, multiple)
