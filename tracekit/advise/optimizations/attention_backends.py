"""Defines the kernels that scaled_dot_product_attention can use, and the GPUs that support them."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from tracekit.analyzers.core import numbers
from tracekit.analyzers.cost import GPU, Attention, Cost
from tracekit.analyzers.predict import PYTHON_OP, Baseline, Extra, OpList, Outcome, Rows, moving, pick, with_extras
from tracekit.capture import CUDNN, EFFICIENT, FLASH, WORDS

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


def moved_to_backend(cost: Cost, name: str | None) -> Cost:
    """Return the same fused attention on the named backend; None selects the preferred one."""
    assert isinstance(cost.work, Attention)
    return replace(cost, work=replace(cost.work, backend=BACKENDS[name].kernels if name else ""))


def is_half(cost: Cost) -> bool:
    return cost.precision in _HALF


PACKAGE = "flash-attention-2"
_UNPADDING = 16
"""Kernels that remove padding before the flash-attn package's kernel and restore it afterwards (transformers'
_upad_input: lengths, indices, three gathers, a scatter), with two waits for the device."""

_NUMBERS = numbers(__file__)
_GATHER = _NUMBERS["gather"]
"""Host time of such a gather, an autograd.Function, in plain launches."""


def with_package(base: Baseline, fused: Rows, outcome: Outcome) -> OpList:
    """Add transformers' code around the package to the ops that `fused` selects.

    The code is an op in Python, and for padded sequences (before version 5 for all) the packing of the sequences.
    """
    batch_size = base.source.capture.batch_size if base.source.capture else 0
    called = Extra("flash_attn (Python)", moving(8, 8), host=1 + 2 * pick(PYTHON_OP, outcome))
    padded = outcome == "worst" or (outcome == "expected" and batch_size > 1)
    rows = fused.nonzero()[0]
    before = {int(row): [called, *(_unpadding(base.ops.cost[row]) if padded else [])] for row in rows}
    return with_extras(base, before, {})


def _unpadding(cost: Cost) -> list[Extra]:
    """Return the kernels that gather keys and values into the package's layout, and read lengths back."""
    moved = cost.read_bytes / 2
    small = [Extra("unpad", moving(64, 64)) for _ in range(_UNPADDING - 4)]
    waits = [Extra("unpad: read back", moving(8, 8, family="copy"), sync=True) for _ in range(2)]
    return [
        *small,
        *waits,
        *(Extra("unpad: gather", moving(moved, moved, family="gather"), host=_GATHER) for _ in range(2)),
    ]
