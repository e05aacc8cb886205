"""Detects calls of scaled_dot_product_attention that fell back to PyTorch's math path, and the reason.

Conditions: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
"""

import json
from typing import Any, Literal

import msgspec
import pandas as pd

from tracekit.analyzers.cost import GPU, VECTOR_BYTES, Precision
from tracekit.analyzers.cost import tensors as dtypes_by_name
from tracekit.analyzers.trace import CaptureInfo

Cause = Literal["bf16", "grouped-heads", "mixed-types", "layout", "head-dim", "mask", "unknown"]

_MATH = "aten::_scaled_dot_product_attention_math"
_HALVES = ("c10::Half", "c10::BFloat16")


class MathFallback(msgspec.Struct, frozen=True):
    """Properties of the calls that prevent fused kernels."""

    cause: Cause
    group: int = 1
    """Number of query heads that share a key head."""
    precision: Precision | None = None
    """Type of the queries; None: unknown."""
    fixed_by_half: bool = False
    """Whether fused kernels support these calls in 16 bits."""
    strided: int = 0
    """Number of operands whose last dimension is not contiguous."""


def math_fallback(host: pd.DataFrame, gpu: GPU, capture: CaptureInfo | None) -> MathFallback | None:
    """Return the most frequent fallback; None if the trace has no call of the math path.

    A modelled run records the math path's ops without the surrounding call, so its settings are used.
    """
    calls = host[(host["name"] == _MATH).to_numpy()]
    if calls.empty:
        modelled = capture is not None and capture.source == "modelled" and capture.attention in ("sdpa", "flash")
        return MathFallback(_cause_by_settings(gpu, capture)) if modelled and capture else None
    texts = calls[["shapes", "dtypes", "strides"]].astype(str).value_counts().index[0]
    shapes, dtypes, strides = (_parsed(text) for text in texts)
    return _explained(shapes, dtypes, strides, gpu)


def _cause_by_settings(gpu: GPU, capture: CaptureInfo) -> Cause:
    if capture.dtype == "bf16" and not gpu.supports("bf16"):
        return "bf16"
    return "unknown" if gpu.supports("flash-attention") else "grouped-heads"


def _explained(shapes: list[Any], dtypes: list[Any], strides: list[Any], gpu: GPU) -> MathFallback:
    if len(shapes) < 3 or any(not _is_shape(shape) for shape in shapes[:3]):
        return MathFallback("unknown")
    query, key = shapes[0], shapes[1]
    group = query[1] // key[1] if len(query) == len(key) == 4 and key[1] else 1
    known = dtypes_by_name.find(str(dtypes[0])) if dtypes else None
    precision = known.precision if known else None
    cause = _cause(shapes, dtypes, strides, gpu, group)
    in_half = _cause(shapes, [_half_on(gpu)] * 3, strides, gpu, group)
    by_half = precision == "fp32" and cause != "unknown" == in_half
    strided = sum(_is_strided(steps) for steps in strides[:3])
    return MathFallback(cause, max(1, group), precision, by_half, strided)


def _half_on(gpu: GPU) -> str:
    return "c10::BFloat16" if gpu.supports("bf16") else "c10::Half"


def _cause(shapes: list[Any], dtypes: list[Any], strides: list[Any], gpu: GPU, group: int) -> Cause:
    element = 2 if dtypes and dtypes[0] in _HALVES else 4
    mask = shapes[3] if len(shapes) > 3 else []
    if "c10::BFloat16" in dtypes[:3] and not gpu.supports("bf16"):
        return "bf16"
    if len(set(dtypes[:3])) > 1:
        return "mixed-types"
    if group > 1 and (not gpu.supports("flash-attention") or mask or element == 4):
        return "grouped-heads"
    if any(_is_strided(steps) for steps in strides[:3]):
        return "layout"
    if shapes[0][-1] * element % VECTOR_BYTES:
        return "head-dim"
    if _is_shape(mask) and mask[-1] * element % VECTOR_BYTES:
        return "mask"
    return "unknown"


def _is_strided(steps: object) -> bool:
    return isinstance(steps, list) and _is_shape(steps) and steps[-1] != 1


def _is_shape(dims: object) -> bool:
    return isinstance(dims, list) and bool(dims) and all(type(size) is int for size in dims)


def _parsed(text: str) -> list[Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        return []
    return parsed if isinstance(parsed, list) else []
