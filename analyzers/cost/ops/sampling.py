"""Pooling and resampling: the input is read once, the output is written once."""

from math import prod

from tracekit.analyzers.cost.ops import tensors
from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.registry import costs, formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, MalformedCall, Shape, Tensor


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
    written = [out, out.like(dtype=tensors.INT64)] if indices else [out]
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


_INT64, _BYTE = DTYPES["int64"], DTYPES["uint8"]
_CORNER_FLOPS = 2
_BOX_FLOPS = 10
"""FLOPs to compare two boxes: their intersection, union, and ratio."""


@costs("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler")
def grid_sampler(call: Arguments) -> Cost:
    """(input[n, c, ...], grid[n, ..., dims], ...): interpolates each output from the corners around it."""
    x, grid = call.tensor(0), call.tensor(1)
    out = _grid_output(x, grid)
    corners = 2 ** grid.shape[-1]
    return moves("gather", _CORNER_FLOPS * corners * out.numel, [x, grid], [out], x.dtype, access="indexed")


@costs("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def grid_sampler_backward(call: Arguments) -> Cost:
    """(grad_out, input, grid, ...): adds each gradient to the corners around its position."""
    gradient, x, grid = (call.tensor(index) for index in range(3))
    flops = 2 * _CORNER_FLOPS * 2 ** grid.shape[-1] * gradient.numel
    return moves("gather", flops, [gradient, x, grid], [x, grid], x.dtype, access="atomic")


def _grid_output(x: Tensor, grid: Tensor) -> Tensor:
    if len(x.shape) != len(grid.shape) or grid.shape[-1] != len(x.shape) - 2:
        raise MalformedCall(f"{grid.shape} is no grid over {x.shape}")
    return x.like((*x.shape[:2], *grid.shape[1:-1]))


@costs("aten::im2col")
def unfold(call: Arguments) -> Cost:
    """(input[n, c, h, w], kernel, dilation, padding, stride): one column for each place of the window."""
    x, windows = call.tensor(0), [call.integers(index) or () for index in range(1, 5)]
    if any(len(window) != len(x.shape[-2:]) for window in windows):
        raise MalformedCall("windows are not recorded")
    places = [_places(size, *sizes) for size, *sizes in zip(x.shape[-2:], *windows, strict=True)]
    columns = x.like((prod(x.shape[:-2]), prod(windows[0]), *places))
    return moves("copy", 0, [x], [columns], x.dtype, access="windows")


def _places(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return max((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)


@costs("aten::col2im")
def fold(call: Arguments) -> Cost:
    """(columns[n, c · kernel, places], output_size, kernel, ...): sums the columns that overlap."""
    columns, sizes, kernel = call.tensor(0), call.integers(1), call.integers(2)
    if not sizes or not kernel:
        raise MalformedCall("sizes are not recorded")
    channels = columns.shape[-2] // max(1, prod(kernel))
    out = columns.like((*columns.shape[:-2], channels, *sizes))
    return moves("copy", columns.numel, [columns], [out], columns.dtype, access="windows")


@costs("aten::_cdist_forward")
def distances(call: Arguments) -> Cost:
    """(a[..., m, k], b[..., n, k], p, ...)."""
    a, b = call.tensor(0), call.tensor(1)
    out = a.like((*a.shape[:-1], b.shape[-2]))
    return moves("other", 3 * out.numel * a.shape[-1], [a, b], [out], a.dtype)


@costs("aten::_cdist_backward")
def distances_backward(call: Arguments) -> Cost:
    """(grad_out[..., m, n], a, b, p, distances): the gradient of a."""
    gradient, a = call.tensor(0), call.tensor(1)
    flops = 4 * gradient.numel * a.shape[-1]
    return moves("other", flops, [gradient, a, call.tensor(2), call.optional(4)], [a], a.dtype)


@costs("aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", access="sort")
@costs("aten::bincount", "aten::histc", access="atomic")
def distinct(call: Arguments, access: Access) -> Cost:
    """Count only the reads, because the number of written elements depends on the data."""
    x = call.tensor(0)
    row = x.numel if access == "sort" else 0
    return moves("reduction", x.numel, [x, call.optional(1)], [], x.dtype, access=access, row=row)


@costs("aten::searchsorted", edges=0, values=1)
@costs("aten::bucketize", edges=1, values=0)
def buckets(call: Arguments, edges: int, values: int) -> Cost:
    """Sorted edges, and values of which each gets the number of a bucket."""
    x = call.tensor(values)
    return moves("gather", 0, [call.tensor(edges), x], [x.like(dtype=_INT64)], x.dtype, access="indexed")


@costs("aten::_weight_norm_interface")
def weight_norm(call: Arguments) -> Cost:
    """(v, g, dim): v scaled to the length g."""
    v, g = call.tensor(0), call.tensor(1)
    return moves("norm", 4 * v.numel, [v, g], [v, g.like(dtype=FLOAT32)], v.dtype)


@costs("aten::_weight_norm_interface_backward")
def weight_norm_backward(call: Arguments) -> Cost:
    """(grad_w, v, g, norms, dim)."""
    v, g = call.tensor(1), call.tensor(2)
    return moves("norm", 7 * v.numel, call.every(0, 4), [v, g], v.dtype)


@costs("aten::complex", flops=0)
@costs("aten::polar", flops=40)
def complex_of(call: Arguments, flops: int) -> Cost:
    """(real, imaginary) or (length, angle)."""
    x = call.tensor(0)
    pairs = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
    fit(x.dtype.name in pairs, call.name)
    return moves("pointwise", flops * x.numel, call.every(0, 2), [x.like(dtype=DTYPES[pairs[x.dtype.name]])], x.dtype)


@costs("aten::_thnn_fused_lstm_cell", kept=6)
@costs("aten::_thnn_fused_gru_cell", kept=6)
def cell(call: Arguments, kept: int) -> Cost:
    """(gates of the input, gates of the state, state, ...): new states, and the gates for the gradient."""
    gates, state = call.tensor(0), call.tensor(2)
    written = state.like((kept, *state.shape))
    return moves("pointwise", 10 * gates.numel, call.every(0, 5), [written], gates.dtype)


@formula
def suppress(call: Arguments) -> Cost:
    """(boxes[n, 4], scores[n], threshold): compares all pairs and stores one bit per pair."""
    boxes = call.tensor(0)
    pairs = boxes.shape[0] ** 2 // 2
    return moves("other", _BOX_FLOPS * pairs, call.every(0, 2), [Tensor((2 * pairs // 8,), _BYTE)], boxes.dtype)
