"""A linear layer with weights of 4 or 8 bits. Importing this module needs torch."""

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tracekit.capture import in_groups

RANK = 16
"""Rank of an adapter."""
SHARES = (1.0, 8 / 7, 0.92, 0.84)
"""Scales that are tried for a group in 4 bits, relative to that of its largest magnitude: one with which the opposite
of that magnitude fits, too, and two that clip it."""
UNCLIPPED = SHARES[:2]
"""Those for weights that were multiplied by factors: the largest belong to the largest inputs."""
FEWEST_ROWS = 17
"""Smallest number of rows that PyTorch multiplies in int8 on a GPU."""


class WeightOnlyLinear(nn.Module):
    """A linear layer whose weights are packed, with a scale for each group of inputs.

    On a GPU with Triton, one kernel reads the packed weights for a GEMM of few rows. Otherwise they are unpacked
    first.
    """

    packed: torch.Tensor
    scale: torch.Tensor
    smooth: torch.Tensor | None

    def __init__(self, packed: torch.Tensor, scale: torch.Tensor, bias: Any, bits: int, smooth: Any = None) -> None:
        """`smooth` multiplies the inputs; None: nothing does."""
        super().__init__()
        self.bits = bits
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale)
        self.register_buffer("smooth", smooth)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    @classmethod
    def of(cls, weight: torch.Tensor, bias: Any, bits: int, group: int, factor: Any = None) -> "WeightOnlyLinear":
        """Return the layer for weights of shape (outputs, inputs), whose inputs are divided by `factor`."""
        if factor is None:
            return cls(*pack(weight, bits, group), bias, bits)
        narrow = pack(smoothed(weight, factor), bits, group, _shares(factor))
        return cls(*narrow, bias, bits, (1 / factor).to(weight.dtype))

    @property
    def weight(self) -> torch.Tensor:
        """The unpacked weights, as they are multiplied."""
        return unpack(self.packed, self.scale, self.bits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.smooth is None else x * self.smooth
        trains = torch.is_grad_enabled() and x.requires_grad
        multiply = _Product.apply if trains else _multiplied  # an autograd.Function takes more host time
        out: torch.Tensor = multiply(x, self.packed, self.scale, self.bias, self.bits)
        return out


class EightBitLinear(nn.Module):
    """A linear layer that multiplies weights and inputs in int8; each input row is quantized by its largest magnitude.

    When gradients flow through it, the inputs keep their type.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    smooth: torch.Tensor

    def __init__(self, weight: torch.Tensor, bias: Any, factor: torch.Tensor) -> None:
        super().__init__()
        values, scale = eight_bits(smoothed(weight, factor))
        self.register_buffer("weight", values.to(torch.int8))
        self.register_buffer("scale", scale.squeeze(-1))
        self.register_buffer("smooth", (1 / factor).to(weight.dtype))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.smooth
        if torch.is_grad_enabled() and x.requires_grad:
            return nn.functional.linear(x, (self.weight * self.scale[:, None]).to(x.dtype), self.bias)
        rows = x.reshape(-1, x.shape[-1])
        largest = (rows.abs().amax(1, keepdim=True).float() / 127).clamp(min=1e-10)
        narrow = (rows / largest).round().to(torch.int8)
        short = max(0, FEWEST_ROWS - len(narrow))
        sums = torch._int_mm(nn.functional.pad(narrow, (0, 0, 0, short)), self.weight.t())[: len(rows)]
        out = (sums * largest * self.scale).to(x.dtype).reshape(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


class FakeQuantizedLinear(nn.Module):
    """A linear layer whose trainable weights are rounded to a format at each step; the gradient ignores rounding
    (Bengio et al., 2013)."""

    factor: torch.Tensor

    def __init__(
        self,
        weight: torch.Tensor,
        bias: Any,
        to: str,
        rounded: Callable[[torch.Tensor], torch.Tensor],
        factor: Any = None,
        activations: bool = False,
    ) -> None:
        """`rounded` returns weights as the format `to` stores them; inputs are rounded, too, if `activations`."""
        super().__init__()
        self.format, self.rounded, self.activations = to, rounded, activations
        self.register_buffer("factor", factor)
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = _straight_through(self.weight, self.rounded(self.weight.detach()))
        if self.activations:
            narrow, largest = eight_bits(x.detach() / self.factor)
            x = _straight_through(x, (narrow * largest * self.factor).to(x.dtype))
        return nn.functional.linear(x, weight, self.bias)


def _straight_through(value: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """Return the rounded values, with the gradient of the unrounded ones."""
    return value + (rounded - value).detach()


def rounded(weight: torch.Tensor, bits: int, group: int, factor: Any = None) -> torch.Tensor:
    """Return weights (outputs, inputs) as they are multiplied in a format; group 0: one scale an output in fp32."""
    wide = weight if factor is None else smoothed(weight, factor)
    if group:
        narrow = in_groups(*narrowed(wide, bits, group, _shares(factor))).float()
    else:
        values, scale = eight_bits(wide)
        narrow = values * scale
    return (narrow if factor is None else narrow / factor).to(weight.dtype)


def _shares(factor: Any) -> tuple[float, ...]:
    """Return the scales that are tried for weights multiplied by factors; those of one change nothing."""
    return SHARES if factor is None or bool((factor == 1).all()) else UNCLIPPED


def eight_bits(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows in int8 (as floats) and the scale of each, its largest magnitude over 127, in fp32."""
    wide = rows.float()
    scale = (wide.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-10)
    return (wide / scale).round(), scale


def smoothed(weight: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return weights (outputs, inputs) for inputs that are divided by `factor`."""
    return (weight.detach().float() * factor).to(weight.dtype)


def with_adapter(layer: nn.Module, weight: torch.Tensor) -> nn.Module:
    """Add a trainable adapter of rank RANK to a layer that has these weights (outputs, inputs) in another format."""
    outputs, inputs = weight.shape
    options: dict[str, Any] = {"dtype": weight.dtype, "device": weight.device}
    layer.lora_a = nn.Parameter(torch.randn(RANK, inputs, **options) * inputs**-0.5)
    layer.lora_b = nn.Parameter(torch.zeros(outputs, RANK, **options))
    layer.register_forward_hook(_add_adapted)
    return layer


def _add_adapted(layer: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    return output + inputs[0] @ layer.lora_a.t() @ layer.lora_b.t()


class _Product(torch.autograd.Function):
    """The GEMM with packed weights. Only the input gets a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, packed: Any, scale: Any, bias: Any, bits: int) -> Any:
        ctx.bits = bits
        ctx.save_for_backward(packed, scale)
        return _multiplied(x, packed, scale, bias, bits)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        packed, scale = ctx.saved_tensors
        return grads[0] @ unpack(packed, scale, ctx.bits).to(grads[0].dtype), None, None, None, None


def _multiplied(x: Any, packed: Any, scale: Any, bias: Any, bits: int) -> Any:
    opaque = x.is_cuda and torch.compiler.is_compiling()  # a custom op takes more host time
    return (_compiled if opaque else _launched)(x, packed, scale, bias, bits)


def _launched(
    x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, bits: int
) -> torch.Tensor:
    if x.is_cuda and (kernel := _kernel()) is not None:
        out: torch.Tensor = kernel.fused(x, packed, scale, bias, bits)
        return out
    return nn.functional.linear(x, unpack(packed, scale, bits).to(x.dtype), bias)


_compiled = torch.library.custom_op("tracekit::weight_only_product", _launched, mutates_args=())


@_compiled.register_fake
def _shaped(x: Any, packed: Any, *_: Any) -> Any:
    return x.new_empty(*x.shape[:-1], len(packed))


@cache
def _kernel() -> ModuleType | None:
    """Return the kernel for GEMMs of few rows; None without Triton."""
    try:
        from tracekit.fuse import weight_only_product
    except ImportError:
        return None
    return weight_only_product


def pack(
    weight: torch.Tensor, bits: int, group: int, shares: tuple[float, ...] = SHARES
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    A run of 4 words holds 128 / bits inputs. Word w has inputs 8 i + 2 w and 8 i + 2 w + 1, plus half of the range, in
    the i-th group of bits of its lower and its upper half. Inputs are a multiple of the group.
    """
    values, scale = narrowed(weight, bits, group, shares)
    return words(values, bits), scale


def narrowed(
    weight: torch.Tensor, bits: int, group: int, shares: tuple[float, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the integers (outputs, inputs) that stand for weights, as floats, and their scales (outputs, groups)."""
    parts = weight.detach().float().reshape(len(weight), -1, group)
    half = 1 << (bits - 1)
    scale = _scales(parts, half, weight.dtype, shares if bits < 8 else SHARES[:1])
    values = (parts / scale.float()).round().clamp(-half, half - 1)
    return values.flatten(1), scale.squeeze(-1).contiguous()


def words(integers: torch.Tensor, bits: int) -> torch.Tensor:
    """Return integers (outputs, inputs) of `bits` bits as words of 32."""
    runs = (integers.to(torch.int32) + (1 << (bits - 1))).reshape(len(integers), -1, 16 // bits, 4, 2)
    packed = torch.zeros_like(runs[:, :, 0, :, 0])
    for i in range(16 // bits):
        packed |= runs[:, :, i, :, 0] << (bits * i) | runs[:, :, i, :, 1] << (bits * i + 16)
    return packed.flatten(1)


def _scales(parts: torch.Tensor, half: int, dtype: torch.dtype, shares: Sequence[float]) -> torch.Tensor:
    """Return the scale of each group (last dimension) with the least squared error of those tried.

    There is one number more below zero than above: a scale has the sign that makes the largest magnitude negative.
    """
    full = -parts.gather(-1, parts.abs().argmax(-1, keepdim=True)) / half
    tried = torch.stack([full * share for share in shares]).to(dtype)
    tried = torch.where(tried == 0, 1.0, tried)
    wide = tried.float()
    errors = ((parts / wide).round().clamp(-half, half - 1) * wide - parts).square().sum(-1, keepdim=True)
    return tried.gather(0, errors.argmin(0, keepdim=True))[0]


def unpack(packed: torch.Tensor, scale: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the weights that `pack` packed, in the type of their scales."""
    return in_groups(integers(packed, bits), scale)


def integers(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the integers (outputs, inputs) in packed words."""
    runs = packed.reshape(len(packed), -1, 1, 4, 1)
    places = torch.arange(0, 32, bits, device=packed.device, dtype=torch.int32).reshape(2, -1, 1).permute(1, 2, 0)
    return (((runs >> places) & ((1 << bits) - 1)) - (1 << (bits - 1))).flatten(1)
