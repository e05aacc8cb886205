"""GEMMs and conversions in 8 and 4 bits of vLLM, SGLang, FlashInfer and DeepGEMM.

Schemas: vLLM, csrc/torch_bindings.cpp and quantization/utils/fp8_utils.py; SGLang, sgl-kernel/csrc/gemm.
"""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import DTYPES, FLOAT32
from tracekit.analyzers.costs.gemm import fit, product, scaled_product
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Product

_BF16, _BYTE = DTYPES["bfloat16"], DTYPES["uint8"]
_MOST_BITS = 8
_GROUP = 16
"""Elements of four bits for each scale."""


@costs("sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm", weights=1)
@costs("vllm::w8a8_block_fp8_matmul", "vllm::w8a8_triton_block_scaled_mm_func", weights=1)
@costs("sglang::w8a8_block_fp8_matmul_triton", "sglang::w8a8_block_fp8_matmul_deepgemm", weights=1)
@costs("vllm::apply_w8a8_block_fp8_linear", "fbgemm::f8f8bf16_blockwise", weights=1)
@costs("vllm::fp8_gemm_nt_op", weights=2)
def eight_bits(call: Arguments, weights: int) -> Cost:
    """(a[m, k], ..., weights[n, k] or [k, n], scales ...): the result is bf16."""
    scales = [each for each in call.every(1) if each.dtype == FLOAT32]
    return scaled_product(call.name, call.tensor(0), call.tensor(weights), scales, _BF16)


@costs("sgl_kernel::bmm_fp8", "vllm::bmm_fp8")
def batched_fp8(call: Arguments) -> Cost:
    """(a[batch, m, k], b[batch, k, n], ...): the result is bf16."""
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 3 and a.shape[-1] == b.shape[1], call.name)
    return product(a, b, Product(a.shape[0], a.shape[1], b.shape[-1], a.shape[-1]), out=_BF16)


@costs("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm", a=1)
@costs("vllm::flashinfer_mm_fp4", a=0)
def four_bits(call: Arguments, a: int) -> Cost:
    """(..., a[m, k / 2], weights[n, k / 2], scales ...): two elements per byte; the result is bf16."""
    left, weight = call.tensor(a), call.tensor(a + 1)
    fit(len(left.shape) == len(weight.shape) == 2 and left.shape[1] in weight.shape, call.name)
    columns = weight.numel // left.shape[1]
    work = Product(1, left.shape[0], columns, 2 * left.shape[1], weight="b", stored="int4")
    scales = call.every(a + 2, a + 4)
    return product(left, weight, work, *scales[:1], of_weights=scales[1:], out=_BF16, compute=_BF16)


@costs("_C::ggml_mul_mat_a8", "_C::ggml_mul_mat_vec_a8")
def ggml_product(call: Arguments) -> Cost:
    """(packed weights, inputs[m, k], type, rows of the weights)."""
    packed, a = call.tensor(0), call.tensor(1)
    columns, inner = call.integer(3), a.shape[-1]
    bits = round(8 * packed.bytes / max(1, columns * inner))
    work = Product(
        1, prod(a.shape[:-1]), columns, inner, weight="b", stored="int4" if 2 * bits <= _MOST_BITS else "int8"
    )
    return product(a, packed, work, compute=a.dtype)


@costs("_C::ggml_dequantize")
def ggml_dequantize(call: Arguments) -> Cost:
    """(packed weights, type, rows, columns, ...): the result is fp16."""
    packed = call.tensor(0)
    widened = Tensor((call.integer(2), call.integer(3)), DTYPES["float16"])
    return moves("pointwise", 2 * widened.numel, [packed], [widened], widened.dtype)


@costs("_C::scaled_fp4_quant", "_C::silu_and_mul_nvfp4_quant", "sgl_kernel::scaled_fp4_quant")
@costs("_C::scaled_fp4_experts_quant", "sgl_kernel::scaled_fp4_experts_quant")
@costs("sgl_kernel::silu_and_mul_scaled_fp4_experts_quant")
def to_four_bits(call: Arguments) -> Cost:
    """Reads or writes each tensor once; the largest one is the input."""
    x = max(call.every(), key=lambda each: each.bytes)
    result = Tensor((x.numel // 2,), _BYTE), Tensor((x.numel // _GROUP,), _BYTE)
    return moves("pointwise", 3 * x.numel, [x], result, x.dtype)


@costs("fbgemm::quantize_fp8_per_row", "fbgemm::quantize_fp8_per_tensor", "vllm::triton_per_token_group_quant_fp8")
def to_eight_bits(call: Arguments) -> Cost:
    """(input, ...): the result and a scale for each row are not among the inputs."""
    x = call.tensor(0)
    result = x.like(dtype=_BYTE), Tensor((x.numel // max(1, x.shape[-1]),), FLOAT32)
    return moves("pointwise", 3 * x.numel, [x], result, x.dtype)
