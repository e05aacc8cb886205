"""Calls that the CPU dispatches, as CUDA would: fused attention by the backend that a GPU chooses, and the RMS norm as
the single op that it is on CUDA if its types agree; the CPU decomposes it into several ops.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import GPU

Backend = Literal["cudnn", "flash", "efficient", "math"]

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An OpOverload with its positional and keyword arguments."""

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)
_FLASH_HEAD_DIM = 256
_CUDNN_HEAD_DIM = 128


def choose(gpu: GPU, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, has_mask: bool) -> Backend:
    """Return the backend for [batch, heads, length, head_dim] tensors on `gpu`.

    Order and conditions are those of PyTorch's sdp_utils.cpp. cuDNN comes first on GPUs for which PyTorch prefers it.
    Flash attention needs half precision and supports no mask. The memory-efficient kernels support masks and fp32, but
    no grouped heads.
    """
    head_dim, same_dims = query.shape[-1], query.shape[-1] == value.shape[-1]
    half = query.dtype == torch.float16 or (query.dtype == torch.bfloat16 and gpu.supports("bf16"))
    grouped = query.shape[1] != key.shape[1]
    if gpu.supports("cudnn-attention") and half and head_dim <= _CUDNN_HEAD_DIM and head_dim % 8 == 0:
        return "cudnn"
    if gpu.supports("flash-attention") and half and not has_mask and same_dims and head_dim <= _FLASH_HEAD_DIM:
        return "flash"
    if gpu.supports("efficient-attention") and not grouped and (half or query.dtype == torch.float32):
        return "efficient"
    return "math"


class AttentionChoice:
    """Chooses the backend of each call; with `flash`, only flash attention may run.

    Raises TracekitError immediately if `gpu` has no flash attention for `dtype`, and later for a call that flash
    attention does not support.
    """

    def __init__(self, gpu: GPU, *, flash: bool, dtype: torch.dtype) -> None:
        self._gpu, self._flash = gpu, flash
        if flash and not gpu.supports("flash-attention"):
            raise _refused(f"{gpu.name} has no flash attention.", "It needs compute capability 8.0 or later.")
        if flash and dtype not in _HALF:
            raise _refused("Flash attention has no fp32 kernels.", "It computes in half precision (fp16, bf16) only.")

    def backend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, has_mask: bool) -> Backend:
        if self._flash and has_mask:
            raise _refused("This model calls attention with a mask.", "Flash attention does not support masks.")
        return "flash" if self._flash else choose(self._gpu, query, key, value, has_mask)

    def follows_query(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the call is an attention whose result has the layout of its query: cuDNN's and flash
        attention's."""
        if func is not aten._scaled_dot_product_flash_attention_for_cpu.default:
            return False
        query, key, value = args[:3]
        return self.backend(query, key, value, kwargs.get("attn_mask") is not None) in ("cudnn", "flash")

    def as_cuda(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the call as CUDA would dispatch it; only calls of the CPU's fused attention are changed."""
        mask = kwargs.get("attn_mask") is not None
        if func is aten._scaled_dot_product_flash_attention_for_cpu.default:
            return _attention(self.backend(args[0], args[1], args[2], mask), *args, **kwargs)
        if func is aten._scaled_dot_product_flash_attention_for_cpu_backward.default:
            return _attention_backward(self.backend(args[1], args[2], args[3], mask), *args, **kwargs)
        return func, args, kwargs


def _refused(what: str, why: str) -> TracekitError:
    return TracekitError(what, why, "Try --attention sdpa, which uses the best kernels of the GPU.")


def _attention(
    backend: Backend,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Call:
    inputs, options = (query, key, value), {"scale": scale}
    if backend == "flash":
        return aten._scaled_dot_product_flash_attention.default, (*inputs, dropout_p, is_causal), options
    cudnn, efficient = aten._scaled_dot_product_cudnn_attention, aten._scaled_dot_product_efficient_attention
    func = (cudnn if backend == "cudnn" else efficient).default
    return func, (*inputs, attn_mask, query.requires_grad, dropout_p, is_causal), options


def _attention_backward(
    backend: Backend,
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Call:
    """Return the backward call. Arguments that CPU kernels lack (random state, cumulative lengths) are None."""
    tensors, options = (grad_out, query, key, value), {"scale": scale}
    lengths = (None, None, query.shape[2], key.shape[2])
    if backend == "flash":
        func = aten._scaled_dot_product_flash_attention_backward.default
        return func, (*tensors, out, logsumexp, *lengths, dropout_p, is_causal, None, None), options
    if backend == "cudnn":
        func = aten._scaled_dot_product_cudnn_attention_backward.default
        return func, (*tensors, out, logsumexp, None, None, attn_mask, *lengths, dropout_p, is_causal), options
    func = aten._scaled_dot_product_efficient_attention_backward.default
    wanted = [True, True, True, attn_mask is not None and attn_mask.requires_grad]
    return func, (*tensors, attn_mask, out, logsumexp, None, None, dropout_p, wanted, is_causal), options


def rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """Return torch.rms_norm of the input, recorded as CUDA would run it."""
    last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous()
    if input.is_complex() or last or (weight is not None and weight.dtype != input.dtype):
        return torch.rms_norm(input, normalized_shape, weight, eps)
    out: torch.Tensor = _norm(input, list(normalized_shape), weight, eps)[0]
    return out


def norm_as_cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the call as CUDA would dispatch it. Only calls of the ops below are changed."""
    if func.namespace != "tracekit":
        return func, args, kwargs
    if func is torch.ops.tracekit.rms_norm.default:
        return aten._fused_rms_norm.default, args, kwargs
    return aten._fused_rms_norm_backward.default, (*args, [True, args[-1] is not None]), {}


@torch.library.custom_op("tracekit::rms_norm", mutates_args=())
def _norm(
    input: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = input.float()
    tiny = torch.finfo(input.dtype).eps if eps is None else eps
    scale = torch.rsqrt(wide.square().mean(_normalized(shape), keepdim=True) + tiny)
    out = (wide * scale).to(input.dtype)
    return (out * weight if weight is not None else out), scale


@_norm.register_fake
def _(input: torch.Tensor, shape: Sequence[int], *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [*input.shape[: input.dim() - len(shape)], *[1] * len(shape)]
    return torch.empty_like(input), input.new_empty(rows, dtype=torch.float32)


@torch.library.custom_op("tracekit::rms_norm_backward", mutates_args=())
def _norm_backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    shape: Sequence[int],
    scale: torch.Tensor,
    weight: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    normal, wide = input.float() * scale, grad.float()
    weighted = wide * weight if weight is not None else wide
    of_input = scale * (weighted - normal * (weighted * normal).mean(_normalized(shape), keepdim=True))
    rows = tuple(range(input.dim() - len(shape)))
    of_weight = (wide * normal).sum(rows) if weight is not None and rows else wide * normal
    return of_input.to(input.dtype), of_weight.to(input.dtype) if weight is not None else input.new_empty(0)


@_norm_backward.register_fake
def _(_grad: torch.Tensor, input: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    weight = others[-1]
    return torch.empty_like(input), torch.empty_like(weight) if weight is not None else input.new_empty(0)


def _normalized(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _save_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    input, ctx.shape, weight, _ = inputs
    ctx.save_for_backward(input, output[1], weight)


def _norm_gradients(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    input, scale, weight = ctx.saved_tensors
    of_input, of_weight = _norm_backward(grad, input, ctx.shape, scale, weight)
    return of_input, None, of_weight if weight is not None else None, None


_norm.register_autograd(_norm_gradients, setup_context=_save_norm)
