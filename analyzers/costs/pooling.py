"""Pooling and resampling: the input is read once, the output is written once."""

from math import prod

from tracekit.analyzers.costs import dtypes
from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Shape, Tensor


@costs("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", indices=True, dilation=4, ceil_mode=5)
@costs("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", dilation=4, ceil_mode=5)
@costs("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d", dilation=-1, ceil_mode=4)
def pool(call: Arguments, dilation: int, ceil_mode: int, indices: bool = False) -> Cost:
    """(self, kernel_size, stride, padding, ...): an empty stride equals the kernel size; no tap is beyond the input."""
    x, kernel = call.tensor(0), call.integers(1)
    rank = len(x.shape) - 2 if kernel and len(kernel) == 1 else len(kernel or ())
    if not kernel or min(kernel) < 1 or rank < 1:
        raise MalformedCall("the kernel's size is not recorded")
    kernel = kernel * rank if len(kernel) == 1 else kernel
    strides = _each(call.integers(2) or kernel, rank)
    paddings, dilations = _each(call.integers(3) or (0,), rank), _each(call.integers(dilation) or (1,), rank)
    windows = list(zip(x.shape[-rank:], kernel, strides, paddings, dilations, strict=True))
    sizes = [_length(n + 2 * p - d * (k - 1) - 1, s, call.flag(ceil_mode)) for n, k, s, p, d in windows]
    taps = prod(min(k, n) for n, k, *_ in windows)
    out = x.like((*x.shape[:-rank], *sizes))
    written = [out, out.like(dtype=dtypes.INT64)] if indices else [out]
    return moves("reduction", out.numel * taps, [x], written, x.dtype)


def _length(room: int, stride: int, ceil_mode: bool) -> int:
    if stride < 1:
        raise MalformedCall("a stride below 1")
    return max((room + (stride - 1 if ceil_mode else 0)) // stride + 1, 0)


def _each(values: Shape, rank: int) -> Shape:
    return values * rank if len(values) == 1 else values


@costs("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool2d")
@costs("aten::adaptive_avg_pool1d")
def adaptive_pool(call: Arguments) -> Cost:
    """(self, output_size)."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [_resized(call, x)], x.dtype)


@costs("aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d", flops=0)
@costs("aten::_upsample_nearest_exact2d", flops=0)
@costs("aten::upsample_bilinear2d", "aten::_upsample_bilinear2d_aa", "aten::upsample_trilinear3d", flops=8)
@costs("aten::upsample_linear1d", flops=4)
@costs("aten::upsample_bicubic2d", "aten::_upsample_bicubic2d_aa", flops=40)
def upsample(call: Arguments, flops: int) -> Cost:
    """(self, output_size, ...)."""
    x = call.tensor(0)
    out = _resized(call, x)
    return moves("reduction", flops * out.numel, [x], [out], x.dtype)


def _resized(call: Arguments, x: Tensor) -> Tensor:
    sizes = call.integers(1)
    if not sizes or len(sizes) >= len(x.shape):
        raise MalformedCall("the output's size is not recorded")
    return x.like((*x.shape[: -len(sizes)], *sizes))


@costs("aten::max_pool2d_with_indices_backward", indices=7)
@costs("aten::avg_pool2d_backward", "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool2d_backward", indices=-1)
def pool_backward(call: Arguments, indices: int) -> Cost:
    """(grad_output, self, ...): distributes the gradient over an output of self's size."""
    grad, x = call.tensor(0), call.tensor(1)
    return moves("reduction", x.numel, [grad, call.optional(indices)], [x], x.dtype, access="windows")
