"""Sets the dtype, TF32 and the attention backend for a run, and restores them afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.analyzers.hardware import GPU
from tracekit.capture.attention_kernels import Backend, only
from tracekit.capture.packages import require
from tracekit.capture.settings import Dtype

TORCH_NAMES: dict[Dtype, str] = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Fields of configurations with the number of a model's experts."""


def torch_dtype(dtype: Dtype) -> Any:
    """Return the torch.dtype of weights and activations; TF32 is fp32 in memory."""
    return getattr(require("torch"), TORCH_NAMES[dtype])


def published_dtype(config: Any, gpu: GPU | None) -> Dtype:
    """Return the dtype in which the weights are published.

    On a GPU without bf16 it is fp16, except for a mixture of experts.
    """
    name = str(getattr(config, "dtype", None)).removeprefix("torch.")
    dtype: Dtype = next((dtype for dtype, known in TORCH_NAMES.items() if known == name), "fp32")
    if dtype != "bf16" or gpu is None or gpu.supports("bf16"):
        return dtype
    return dtype if has_experts(config) else "fp16"


def has_experts(config: Any) -> bool:
    """Return whether a model is a mixture of experts. torch has grouped GEMMs only for bf16."""
    return any(hasattr(config, name) for name in _EXPERTS)


@contextmanager
def numerics(dtype: Dtype, backend: Backend) -> Iterator[None]:
    """Use TF32 for GEMMs only if `dtype` is tf32, and only this backend's kernels for fused attention."""
    torch = require("torch")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        with only(backend):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
