"""Convolutions: 2 FLOPs per weight and position; each gradient costs as much as the forward pass."""

from collections.abc import Sequence
from math import log2, prod

import msgspec
from msgspec.structs import replace

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import DTYPES, DType, MalformedCall, Shape, Tensor, promote
from tracekit.analyzers.cost.ops.work import ConvolutionGradients, Product


class Positions(msgspec.Struct, frozen=True):
    """Positions of a convolution op's parameters; -1: the op lacks the parameter, and the default applies."""

    stride: int
    padding: int
    dilation: int
    groups: int = -1
    bias: int = 2
    transposed: int = -1
    output_padding: int = -1
    always_transposed: bool = False
    allow_tf32: int = -1


_CONVOLUTION = Positions(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
_CONV = Positions(stride=3, padding=4, dilation=5, groups=6)
_BACKEND = Positions(padding=3, stride=4, dilation=5, groups=6)
_GRADIENTS = Positions(stride=4, padding=5, dilation=6, transposed=7, output_padding=8, groups=9)


@costs("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", at=_CONVOLUTION)
@costs("aten::conv1d", "aten::conv2d", "aten::conv3d", at=_CONV)
@costs("aten::cudnn_convolution_relu", at=_CONV)
@costs("aten::miopen_convolution", "aten::mkldnn_convolution", "aten::miopen_depthwise_convolution", at=_BACKEND)
@costs("aten::cudnn_convolution", at=Positions(padding=2, stride=3, dilation=4, groups=5, bias=-1, allow_tf32=8))
@costs(
    "aten::cudnn_convolution_transpose",
    at=Positions(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, bias=-1, always_transposed=True, allow_tf32=9
    ),
)
@costs(
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    at=Positions(stride=3, padding=4, output_padding=5, groups=6, dilation=7, always_transposed=True),
)
@costs("aten::_slow_conv2d_forward", "aten::thnn_conv2d", at=Positions(bias=3, stride=4, padding=5, dilation=-1))
@costs("aten::_conv_depthwise2d", "aten::conv_depthwise3d", at=Positions(bias=3, stride=4, padding=5, dilation=6))
def convolution(call: Arguments, at: Positions) -> Cost:
    x, weight = call.tensor(0), call.tensor(1)
    transposed = at.always_transposed or call.flag(at.transposed)
    groups = _groups(call, at, x, weight, transposed)
    sizes = _spatial(call, at, x.shape[2:], weight.shape[2:], transposed)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    out = Tensor((x.shape[0], channels, *sizes), x.dtype)
    bias = call.optional(at.bias)
    applied = prod(x.shape[2:] if transposed else sizes)
    cost = moves(
        "convolution",
        2 * x.shape[0] * weight.numel * applied,
        [x, weight, bias],
        [out],
        promote([x, weight]),
        weight=weight,
        shared=[bias],
        work=replace(_gemm(x.shape[0] * applied, weight.shape, groups, transposed), bias=bias is not None),
        access="linear" if _channels_last(x) or _is_product(call, at, weight) else "transposed",
        run=x.shape[1] // groups,
    )
    return replace(cost, precision="tf32") if cost.precision == "fp32" and call.flag(at.allow_tf32) else cost


@costs("aten::convolution_backward", "aten::convolution_backward_overrideable")
def convolution_backward(call: Arguments) -> Cost:
    """(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
    output_mask): without a mask, all three gradients."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    wants_input, wants_weight, wants_bias = _output_mask(call.value(10))
    applied = prod((x if call.flag(7) else grad).shape[2:])
    products = wants_input + wants_weight
    flops = products * 2 * grad.shape[0] * weight.numel * applied + wants_bias * grad.numel
    reads = [grad, weight if wants_input else None, x if wants_weight else None]
    bias = grad.like(grad.shape[1:2]) if wants_bias else None
    writes = [x if wants_input else None, weight if wants_weight else None, bias]
    parameter = weight if wants_input else None
    parameters = [weight if wants_weight else None, bias]
    taps, run = prod(weight.shape[2:]), x.shape[1] // _groups(call, _GRADIENTS, x, weight, call.flag(7))
    dilation = _each(call, _GRADIENTS.dilation, weight.shape[2:], 1)
    work = ConvolutionGradients(
        positions=grad.shape[0] * applied,
        weights=weight.numel,
        inputs=x.numel,
        outputs=grad.numel,
        groups=x.shape[1] // run,
        taps=taps,
        reach=max((step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)), default=0),
        of_input=wants_input,
        of_weights=wants_weight,
        of_bias=wants_bias,
    )
    return moves(
        "convolution",
        flops,
        reads,
        writes,
        promote([grad, weight]),
        weight=parameter,
        shared_results=parameters,
        work=work,
        access="linear" if _channels_last(x) or _is_product(call, _GRADIENTS, weight) else "transposed",
        run=run,
    )


def _channels_last(x: Tensor) -> bool:
    return x.strides is not None and x.strides[1] == 1


def _is_product(call: Arguments, at: Positions, weight: Tensor) -> bool:
    """Return whether the window has one position and stride 1: a plain GEMM in any layout."""
    return prod(weight.shape[2:]) == 1 and set(_each(call, at.stride, weight.shape[2:], 1)) == {1}


def _output_mask(value: object) -> tuple[bool, bool, bool]:
    if isinstance(value, tuple) and len(value) == 3:
        return bool(value[0]), bool(value[1]), bool(value[2])
    return True, True, False


def _groups(call: Arguments, at: Positions, x: Tensor, weight: Tensor, transposed: bool) -> int:
    """Return the number of groups from the channels; for a transposed convolution, from the recorded value."""
    rank = len(x.shape)
    if rank < 3 or len(weight.shape) != rank or not all(weight.shape):
        raise MalformedCall(f"{call.name}: {x.shape} with weights {weight.shape}")
    groups = call.integer(at.groups, 1) if transposed else x.shape[1] // weight.shape[1]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if groups < 1 or x.shape[1] != expected or weight.shape[0] % groups:
        raise MalformedCall(f"{call.name}: {x.shape[1]} channels with weights {weight.shape}")
    return groups


def _spatial(call: Arguments, at: Positions, sizes: Shape, kernel: Shape, transposed: bool) -> Shape:
    """Return the output's spatial sizes. Raises MalformedCall if stride or padding are not recorded."""
    if call.value(at.padding) == "same":
        return sizes
    stride, dilation = _each(call, at.stride, sizes, 1), _each(call, at.dilation, sizes, 1)
    padding = (0,) * len(sizes) if call.value(at.padding) == "valid" else _each(call, at.padding, sizes, 0)
    extra = _each(call, at.output_padding, sizes, 0)
    spans = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    pieces = zip(sizes, stride, padding, spans, extra, strict=True)
    if transposed:
        return tuple(max((n - 1) * s - 2 * p + span + more, 0) for n, s, p, span, more in pieces)
    return tuple(max((n + 2 * p - span) // s + 1, 0) for n, s, p, span, _ in pieces)


def _each(call: Arguments, index: int, sizes: Shape, default: int) -> Sequence[int]:
    """Return one value per spatial dim; a single number applies to all."""
    if index < 0:
        return (default,) * len(sizes)
    values = call.integers(index)
    if values is None or len(values) not in (1, len(sizes)) or min(values) < default:
        raise MalformedCall(f"{call.name}: input {index} is not recorded")
    return values * len(sizes) if len(values) == 1 else values


def _gemm(positions: int, weight: Shape, groups: int, transposed: bool) -> Product:
    """Return the convolution as one GEMM per group."""
    outer, inner = weight[0] // groups, weight[1]
    taps = prod(weight[2:])
    n, k = (inner * taps, outer) if transposed else (outer, inner * taps)
    return Product(groups, positions, n, k, weight="b")


_FLOPS = 5.0
_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {complex_: real for real, complex_ in _COMPLEX.items()}


@costs("aten::_fft_c2c")
def complex_to_complex(call: Arguments) -> Cost:
    """(self, dim, normalization, forward)."""
    x = call.tensor(0)
    return _transform(call, x, x, _FLOPS)


@costs("aten::_fft_r2c")
def real_to_complex(call: Arguments) -> Cost:
    """(self, dim, normalization, onesided): one side is half of the last transformed dim, and one more."""
    x = call.tensor(0)
    shape = list(x.shape)
    if call.flag(3):
        shape[_dims(call, x)[-1]] = shape[_dims(call, x)[-1]] // 2 + 1
    return _transform(call, x, x.like(shape, _paired(x.dtype, _COMPLEX)), _FLOPS / 2)


@costs("aten::_fft_c2r")
def complex_to_real(call: Arguments) -> Cost:
    """(self, dim, normalization, last_dim_size)."""
    x = call.tensor(0)
    shape = list(x.shape)
    shape[_dims(call, x)[-1]] = call.integer(3)
    out = x.like(shape, _paired(x.dtype, _REAL))
    return _transform(call, out, out, _FLOPS / 2, read=x)


def _transform(call: Arguments, over: Tensor, out: Tensor, flops: float, read: Tensor | None = None) -> Cost:
    """Return the cost of a transform of the elements of `over` along the dims of the call."""
    length = max(prod(over.shape[dim] for dim in _dims(call, over)), 1)
    work = round(flops * over.numel * log2(length))
    return moves("other", work, [read or over], [out], over.dtype)


def _dims(call: Arguments, x: Tensor) -> list[int]:
    dims = call.integers(1)
    if not dims or any(abs(dim) > len(x.shape) for dim in dims):
        raise MalformedCall("the transformed dims are not recorded")
    return [dim % len(x.shape) for dim in dims]


def _paired(dtype: DType, names: dict[str, str]) -> DType:
    if dtype.name not in names:
        raise MalformedCall(f"no transform of {dtype.name}")
    return DTYPES[names[dtype.name]]
