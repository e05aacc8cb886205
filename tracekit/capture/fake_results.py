"""Restores properties that results lose on fake tensors.

A GEMM folds its batch depending on strides, and on whether its second factor is a parameter.
"""

from typing import Any

import torch

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)


def as_real(func: Any, args: tuple[Any, ...], result: Any, follows_query: bool) -> Any:
    """Return the result of `func` as CUDA does: in its layout, and with a transposed parameter that still needs a
    gradient.

    `follows_query` says that the result of an attention has the layout of its query.
    """
    if func is aten.t.default and args[0].requires_grad and torch.is_inference_mode_enabled():
        return result.requires_grad_()
    if func in _VIEWS:
        return _canonical(result)
    if func is aten._scaled_dot_product_flash_attention_for_cpu.default:
        out, log_sumexp = result
        order = _order(args[0]) if follows_query else (0, 2, 1, 3)
        return torch.empty_permuted(out.shape, order, dtype=out.dtype, device=out.device), log_sumexp
    return result


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions from the largest stride to the smallest."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def _canonical(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous view with the strides of its shape; on fake tensors, dimensions of size 1 have others."""
    if not tensor.is_contiguous():
        return tensor
    strides = [1]
    for size in reversed(tensor.shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    return tensor if list(tensor.stride()) == strides[: tensor.dim()] else tensor.as_strided(tensor.shape, strides)
