"""Fourier transforms: 5·n·log2(n) FLOPs for n complex numbers (radix 2), half of that for real ones."""

from math import log2, prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import DTYPES, DType
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Tensor

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
