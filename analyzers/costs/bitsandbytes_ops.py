"""Ops that bitsandbytes registers since 0.46: weights in 4 bits, GEMMs in 8 bits, and conversions.

Schemas: bitsandbytes, bitsandbytes/_ops.py.
"""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import DTYPES, FLOAT32, INT32
from tracekit.analyzers.costs.gemm import fit, product
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Product

_FP16, _BYTE = DTYPES["float16"], DTYPES["int8"]


@costs("bitsandbytes::gemv_4bit")
def gemv_4bit(call: Arguments) -> Cost:
    """(a[m, k], packed weights, their shape, scales, code, block size)."""
    a, packed, shape = call.tensor(0), call.tensor(1), call.integers(2)
    fit(shape is not None and len(shape) == 2 and shape[1] == a.shape[-1], call.name)
    assert shape is not None
    work = Product(1, prod(a.shape[:-1]), shape[0], shape[1], weight="b", stored="int4")
    return product(a, packed, work, of_weights=call.every(3, 5), compute=a.dtype)


@costs("bitsandbytes::dequantize_4bit", scales=1, shape=4, dtype=5)
@costs("bitsandbytes::dequantize_blockwise", scales=1, shape=-1, dtype=4)
def dequantize(call: Arguments, scales: int, shape: int, dtype: int) -> Cost:
    """(packed weights, scales, ...): weights in the requested type; half precision if it is not recorded."""
    packed = call.tensor(0)
    widened = Tensor(call.integers(shape) or packed.shape, call.dtype(dtype) or _FP16)
    return moves("pointwise", 2 * widened.numel, [packed, call.tensor(scales)], [widened], widened.dtype)


@costs("bitsandbytes::quantize_4bit", bits=4)
@costs("bitsandbytes::quantize_blockwise", "bitsandbytes::int8_vectorwise_quant", bits=8)
@costs("bitsandbytes::int8_double_quant", bits=16)
def packed(call: Arguments, bits: int) -> Cost:
    """(input, ...): `bits` for each element; the scales are small."""
    x = call.tensor(0)
    return moves("pointwise", 3 * x.numel, [x], [Tensor((x.numel * bits // 8,), _BYTE)], x.dtype)


@costs("bitsandbytes::int8_linear_matmul", out=INT32)
@costs("bitsandbytes::int8_scaled_mm", "bitsandbytes::int8_mixed_scaled_mm", out=_FP16)
def int8_product(call: Arguments, out: object) -> Cost:
    """(a[m, k], weights[n, k], ...)."""
    a, weight = call.tensor(0), call.tensor(1)
    fit(len(weight.shape) == 2 and a.shape[-1:] == weight.shape[1:], call.name)
    work = Product(1, prod(a.shape[:-1]), weight.shape[0], weight.shape[1], weight="b")
    return product(a, weight, work, out=INT32 if out is INT32 else _FP16)


@costs("bitsandbytes::int8_mm_dequant")
def int8_result(call: Arguments) -> Cost:
    """(products[m, n], scales of rows, scales of columns, type, bias)."""
    x = call.tensor(0)
    scales = [each for each in call.every(1) if each.dtype == FLOAT32]
    return moves("pointwise", 3 * x.numel, [x, *scales], [x.like(dtype=call.dtype(3) or _FP16)], FLOAT32)
