"""GEMMs of serving engines with weights packed in 4 or 8 bits: AWQ, GPTQ, Marlin, Machete; FBGEMM's in fp8.

Schemas: vLLM, csrc/torch_bindings.cpp; FBGEMM, fbgemm_gpu/experimental/gen_ai/src/quantize. Packed weights do not show
their sizes: the columns are those of the scales, which have a row for each group of inputs.
"""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import DTYPES, Kind
from tracekit.analyzers.costs.gemm import fit, product
from tracekit.analyzers.costs.quantized_gemm import scaled_product
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Precision, Product

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
    work = scaled_product(rows, weights.like(weights.shape[::-1]), scales)
    return product(rows, weights, work, *scales[:1], of_weights=scales[1:], out=DTYPES["bfloat16"])


@costs("_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm", "sgl_kernel::dsv3_router_gemm")
@costs("_C::router_gemm_bf16_fp32", "_moe_C::dsv3_router_gemm")
def product_into(call: Arguments) -> Cost:
    """(result, a[m, k], b[k, n])."""
    out, a, b = (call.tensor(index) for index in range(3))
    return product(a, b, Product(1, a.shape[0], out.shape[-1], a.shape[-1], weight="b"), out=out.dtype)
