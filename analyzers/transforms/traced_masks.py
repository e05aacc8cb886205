"""Attention masks that transformers builds only while a step is compiled or recorded.

Where nothing is padded, attention needs no mask, or a causal flag in place of one. Versions before 5.18 do not see that
while they are traced or captured (masking_utils asks is_tracing of a padding mask that is None), and build one:

- an encoder's is broadcast along the keys; its last stride is 0, which no fused kernel takes: attention falls to the
  math backend;
- a decoder's is taken by fused kernels, which then neither skip what is masked nor know grouped heads.
"""

import re
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_tree import READS_A_VALUE
from tracekit.analyzers.transforms import math_attention
from tracekit.analyzers.transforms.by_cost import costs_of, each, each_row, where
from tracekit.analyzers.transforms.extra_kernels import Extra, with_extras
from tracekit.analyzers.transforms.masked_attention import is_compiled, is_masked, with_masks
from tracekit.analyzers.transforms.outcome import Outcome, pick, remembered
from tracekit.analyzers.transforms.written_attention import written_out

FIRST = (5, 0)
FIRST_OF_IMAGES = (5, 9)
_LAYERS = ("gemm", "convolution", "attention")
MENDED = (5, 18)
"""Versions of transformers: the first that build them, for models of text and of images, and the first that do not."""
_WITHOUT = (
    *("Cvt", "DINOv3", "DPT", "Data2VecVision", "Deberta", "Disentangled", "DonutSwin", "Hiera", "InternVLVision"),
    *("LayoutLMSelf", "LayoutLMv2", "Levit", "Lxmert", "MarkupLM", "Mask2Former", "MaskFormerSwin", "MobileViT"),
    *(
        "OneFormer",
        "Pixtral",
        "Pvt",
        "Reformer",
        "SEWD",
        "SamVision",
        "Segformer",
        "Swin",
        "TimeSformer",
        "Timesformer",
    ),
    *("VideoMAE", "VitDet", "VitPose", "Voxtral", "WavLM", "XLNet", "Yolos"),
)
"""First words of attention classes of transformers whose models do not use masking_utils, and build no mask."""
KERNEL_ERROR = Interval(1.25, 1.0, 0.85)
"""Real over modelled time of the math backend's kernels. ViT-large (batch 8) on an H200: 187 us a layer for 178 in a
graph, 98 for 89 compiled; BERT-large 120 for 116."""


def traced(base: Baseline, outcome: Outcome) -> pd.DataFrame:
    """The op list with attention as it is while the step is compiled, or recorded as it stands."""
    if not _builds_masks(base):
        return base.ops
    found = replace(base, ops=_written_out(base, outcome))
    return with_masks(found, where(found.ops, _is_causal), outcome)


def unfused(base: Baseline) -> "pd.Series[bool]":
    """Rows of an encoder's attention that falls to the math backend then."""
    return where(base.ops, _is_encoders) & ~is_masked(base.ops) & _builds_masks(base)


def from_the_host(base: Baseline) -> bool:
    """Whether recording makes a mask that the traced step has none of, for attention that is written out: it is filled
    from a tensor of the host."""
    capture = base.source.capture
    eager = capture is not None and capture.attention == "eager"
    return eager and _builds_masks(base) and not is_compiled(base) and bool(written_out(base))


def asked(ops: pd.DataFrame) -> "pd.Series[bool]":
    """Rows that read back whether all of a mask is set: transformers does not ask while it is traced or captured.

    It asks before a model's layers. What is read back after a product is not a mask, but a result.
    """
    return ops.call.isin(READS_A_VALUE) & (ops.call.shift() == "aten::all") & _before_layers(ops)


def _before_layers(ops: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Rows between the embedding of tokens, or the start, and the first product after it."""
    products = each(lambda cost: cost is not None and cost.family in _LAYERS, ops.cost, dtype=bool)
    embeddings = (ops.call == "aten::embedding").to_numpy()
    row = np.arange(1, len(ops) + 1)
    return np.maximum.accumulate(row * products) <= np.maximum.accumulate(row * embeddings)


@remembered
def mended(base: Baseline) -> Baseline:
    """The run as it is with a version that leaves the masks out."""
    capture = base.source.capture
    assert capture is not None
    versions = {**capture.versions, "transformers": _words(MENDED)}
    return replace(base, source=replace(base.source, capture=msgspec.structs.replace(capture, versions=versions)))


def _written_out(base: Baseline, outcome: Outcome) -> pd.DataFrame:
    rows = unfused(base)
    if not rows.any():
        return base.ops
    kernels = math_attention.compiled if is_compiled(base) else math_attention.with_a_mask
    error = pick(KERNEL_ERROR, outcome)

    def instead(fused: Cost) -> list[Extra]:
        return [Extra(f"math attention: {cost.family}", cost, error=error) for cost in kernels(fused)]

    after = each_row(costs_of(base.ops, rows), instead)
    return with_extras(base, {}, after, gone=after)


def _builds_masks(base: Baseline) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version_of(base))
    capture = base.source.capture
    if not found or capture is None:
        return False
    if base.ops.layer_type.astype(str).str.startswith(_WITHOUT).any():
        return False
    first = FIRST if capture.seq_len else FIRST_OF_IMAGES
    return first <= (int(found[1]), int(found[2])) < MENDED


def version_of(base: Baseline) -> str:
    return base.source.capture.versions.get("transformers", "") if base.source.capture else ""


def _words(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _is_encoders(cost: Cost | None) -> bool:
    """Attention of all to all."""
    shape = cost.work if cost else None
    return isinstance(shape, Attention) and not shape.causal and shape.queries == shape.keys > 1


def _is_causal(cost: Cost | None) -> bool:
    """Of a decoder: its one query is the last."""
    shape = cost.work if cost else None
    return isinstance(shape, Attention) and (shape.causal or shape.queries == 1)
