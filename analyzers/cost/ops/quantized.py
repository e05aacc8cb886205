"""GEMMs of quantized matrices."""

from collections.abc import Sequence
from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, grouped, product
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, INT32, Kind, Tensor
from tracekit.analyzers.cost.ops.work import Precision, Product


def scaled_sizes(a: Tensor, b: Tensor, scales: Sequence[Tensor]) -> Product:
    """Return the cost of a GEMM of matrices with one scale each, or one per row of `a` and column of `b`."""
    m, n = a.shape[0], b.shape[1]
    by_row = len(scales) > 1 and (scales[0].numel, scales[1].numel) == (m, n) and max(m, n) > 1
    return Product(1, m, n, a.shape[1], weight="b", row_scales=by_row)


@costs("aten::_scaled_mm")
def scaled_mm(call: Arguments) -> Cost:
    """(a, b, scales of a, scales of b, bias, scale of the result, type)."""
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    scales = call.every(2, 4)
    of_weights = [*scales[1:], *call.every(4, 6)]
    return product(a, b, scaled_sizes(a, b, scales), *scales[:1], of_weights=of_weights, out=call.dtype(6))


@costs("aten::_scaled_grouped_mm")
def scaled_grouped_mm(call: Arguments) -> Cost:
    scales = call.every(2, 4)
    return grouped(call, call.optional(4), *scales, *call.every(5, 7), out=call.dtype(7))


@costs("aten::_int_mm")
def int_mm(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    return product(a, b, Product(1, a.shape[0], b.shape[1], a.shape[1], weight="b"), out=INT32)


@costs("aten::_weight_int8pack_mm")
def weight_int8pack_mm(call: Arguments) -> Cost:
    """a[m, k] by int8 weights[n, k] with a scale per row; the weights are converted to a's type first."""
    a, weight, scales = call.tensor(0), call.tensor(1), call.tensor(2)
    fit(len(a.shape) == len(weight.shape) == 2 and a.shape[1] == weight.shape[1], call.name)
    work = Product(1, a.shape[0], weight.shape[0], a.shape[1], weight="b", stored="int8")
    return product(a, weight, work, of_weights=[scales], compute=a.dtype)


@costs("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(call: Arguments) -> Cost:
    """a[m, k] by packed int4 weights, with a scale and a zero point per group: scales[k / group, n, 2]."""
    a, weight, scales = call.tensor(0), call.tensor(1), call.tensor(3)
    fit(len(scales.shape) == 3, call.name)
    work = Product(1, prod(a.shape[:-1]), scales.shape[1], a.shape[-1], weight="b", stored="int4")
    return product(a, weight, work, of_weights=[scales], compute=a.dtype)


_MOST_BITS = 8


@costs("_C::awq_gemm", "_C::gptq_gemm", "sgl_kernel::gptq_gemm", "_C::gptq_marlin_24_gemm", weights=1)
@costs("_C::fp8_marlin_gemm", "_C::cutlass_w4a8_mm", "fbgemm::bf16i4bf16_rowwise", weights=1)
@costs("_C::gptq_marlin_gemm", "_C::marlin_gemm", "_C::awq_marlin_gemm", "sgl_kernel::gptq_marlin_gemm", weights=2)
@costs("_C::machete_mm", "_C::allspark_w8a16_gemm", weights=1)
def packed_product(call: Arguments, weights: int) -> Cost:
    """(activations, packed weights, ..., scales, ...): scales are the first matrix of numbers after the weights."""
    a, packed = call.tensor(0), call.tensor(weights)
    scales = next((each for each in call.every(weights + 1) if _is_matrix_of_numbers(each)), None)
    fit(scales is not None, call.name)
    assert scales is not None
    rows, columns, inner = prod(a.shape[:-1]), scales.shape[-1], a.shape[-1]
    bits = round(8 * packed.bytes / max(1, columns * inner))
    fit(0 < bits <= _MOST_BITS, call.name)
    stored: Precision = "int4" if 2 * bits <= _MOST_BITS else "int8"
    work = Product(1, rows, columns, inner, weight="b", stored=stored)
    return product(a, packed, work, of_weights=[scales], compute=a.dtype)


def _is_matrix_of_numbers(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and tensor.dtype.kind == Kind.FLOAT


@costs("_C::awq_dequantize", "sgl_kernel::awq_dequantize")
def awq_dequantize(call: Arguments) -> Cost:
    """(packed weights, scales, zero points, ...): weights in the type of the scales."""
    packed, scales = call.tensor(0), call.tensor(1)
    widened = scales.like((packed.shape[0], scales.shape[-1]))
    return moves("pointwise", 2 * widened.numel, call.every(0, 3), [widened], scales.dtype)


@costs("fbgemm::f8f8bf16", "fbgemm::f8f8bf16_rowwise", "fbgemm::f8f8bf16_tensorwise", "fbgemm::f8f8bf16_cublas")
def fp8_product(call: Arguments) -> Cost:
    """(a[m, k], weights[n, k], scales ...): the result is bf16."""
    a, weights = call.tensor(0), call.tensor(1)
    fit(len(weights.shape) == 2 and a.shape[-1] == weights.shape[1], call.name)
    rows = a.like((prod(a.shape[:-1]), a.shape[-1]))
    scales = call.every(2, 4)
    work = scaled_sizes(rows, weights.like(weights.shape[::-1]), scales)
    return product(rows, weights, work, *scales[:1], of_weights=scales[1:], out=DTYPES["bfloat16"])


@costs("_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm", "sgl_kernel::dsv3_router_gemm")
@costs("_C::router_gemm_bf16_fp32", "_moe_C::dsv3_router_gemm")
def product_into(call: Arguments) -> Cost:
    """(result, a[m, k], b[k, n])."""
    out, a, b = (call.tensor(index) for index in range(3))
    return product(a, b, Product(1, a.shape[0], out.shape[-1], a.shape[-1], weight="b"), out=out.dtype)


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
