"""Defines the kernels that scaled_dot_product_attention can use, and the GPUs that support them."""

from dataclasses import replace
from typing import Literal

import msgspec

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention
from tracekit.analyzers.hardware import GPU
from tracekit.capture.attention_kernels import CUDNN, EFFICIENT, FLASH, WORDS

_HALF = ("fp16", "bf16")


class Backend(msgspec.Struct, frozen=True):
    words: str
    needs: str
    """Required GPU feature."""
    kernels: Literal["cudnn", "flash", "efficient"]
    """Attention.backend of its calls."""
    half_only: bool
    enum: str
    """Member of torch.nn.attention.SDPBackend; "" for a separate package."""


BACKENDS = {
    "cudnn": Backend(WORDS[CUDNN], "cudnn-attention", "cudnn", True, CUDNN),
    "flash": Backend(WORDS[FLASH], "flash-attention", "flash", True, FLASH),
    "efficient": Backend(WORDS[EFFICIENT], "efficient-attention", "efficient", False, EFFICIENT),
    "flash-attention-2": Backend("the flash-attn package", "flash-attention", "flash", True, ""),
}
"""Backends in PyTorch's order of preference; "math" is unfused attention."""


def preferred(gpu: GPU, *, half: bool) -> str | None:
    """Return the backend that PyTorch prefers; None if it does not fuse attention."""
    able = (name for name, backend in BACKENDS.items() if backend.enum and runs(name, gpu, half=half))
    return next(able, None)


def runs(name: str, gpu: GPU, *, half: bool) -> bool:
    return gpu.supports(BACKENDS[name].needs) and (half or not BACKENDS[name].half_only)


def on_backend(cost: Cost, name: str | None) -> Cost:
    """Return the same fused attention on the named backend; None selects the preferred one."""
    assert isinstance(cost.work, Attention)
    return replace(cost, work=replace(cost.work, backend=BACKENDS[name].kernels if name else ""))


def is_half(cost: Cost) -> bool:
    return cost.precision in _HALF
