"""Norms, activations, rotary embeddings and quantization of vLLM and SGLang.

Schemas: vLLM, csrc/torch_bindings.cpp (the first input of most ops is the output); SGLang, sgl-kernel/csrc.
"""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, product, scaled_product
from tracekit.analyzers.cost.ops.quantized import scaled_sizes
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Tensor
from tracekit.analyzers.cost.ops.work import Norm, Product

_RMS_FLOPS = 4
"""FLOPs per element: square and sum 2, scale 1, weight 1."""
_ROTARY_FLOPS = 3
"""FLOPs per rotated element: two multiplications and an addition."""


@costs("_C::rms_norm", "_C::rms_norm_static_fp8_quant", "_C::rms_norm_dynamic_per_token_quant", "sgl_kernel::rmsnorm")
@costs("_C::rms_norm_per_block_quant")
@costs("sgl_kernel::gemma_rmsnorm")
def rms_norm(call: Arguments) -> Cost:
    """(result, input, weight, ...): the result may be quantized."""
    out, x, weight = (call.tensor(index) for index in range(3))
    return _normalized(_RMS_FLOPS, [x], weight, [out])


@costs("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm")
def fused_add_rms_norm(call: Arguments) -> Cost:
    """(input, residual, weight, epsilon): updates both tensors; the sum is one more FLOP."""
    x, residual, weight = (call.tensor(index) for index in range(3))
    return _normalized(_RMS_FLOPS + 1, [x, residual], weight, [x, residual])


@costs("_C::fused_add_rms_norm_static_fp8_quant")
def fused_add_rms_norm_quantized(call: Arguments) -> Cost:
    """(result, input, residual, weight, scale, epsilon)."""
    out, x, residual, weight = (call.tensor(index) for index in range(4))
    return _normalized(_RMS_FLOPS + 1, [x, residual], weight, [out, residual])


def _normalized(flops: int, read: list[Tensor], weight: Tensor, written: list[Tensor]) -> Cost:
    """Return the cost of an RMS norm with `flops` for each element of the first tensor in `read`."""
    x = read[0]
    return moves(
        "norm",
        flops * x.numel,
        [*read, weight],
        written,
        x.dtype,
        row=weight.numel,
        work=Norm(False),
        shared=[weight],
    )


@costs("_C::silu_and_mul", "_C::mul_and_silu", "_C::silu_and_mul_quant", "sgl_kernel::silu_and_mul", activation=5)
@costs("_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "_C::fatrelu_and_mul", "_C::swigluoai_and_mul", activation=8)
@costs("sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul", activation=8)
def gated_activation(call: Arguments, activation: int) -> Cost:
    """(result[..., d], input[..., 2 d], ...): multiplies the activation of one half by the other half."""
    out, x = call.tensor(0), call.tensor(1)
    return moves("pointwise", (activation + 1) * out.numel, [x], [out], x.dtype)


@costs("_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick")
def activation(call: Arguments) -> Cost:
    """(result, input)."""
    out, x = call.tensor(0), call.tensor(1)
    return moves("pointwise", 8 * x.numel, [x], [out], x.dtype)


@costs("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary_embedding(call: Arguments) -> Cost:
    """(positions, query, key or none, head_size, cos_sin_cache, ...): rotates queries and keys in place."""
    positions, rotated, cache = call.tensor(0), call.every(1, 3), call.tensor(4)
    touched = cache.like((min(positions.numel, cache.shape[0]), *cache.shape[1:]))
    flops = _ROTARY_FLOPS * sum(each.numel for each in rotated)
    return moves("pointwise", flops, [positions, touched, *rotated], rotated, rotated[0].dtype, access="indexed")


@costs("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant")
@costs("_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant")
def quantize(call: Arguments) -> Cost:
    """(result, input, scale, ...): dynamic scales need the largest magnitude, which is one more FLOP."""
    out, x = call.tensor(0), call.tensor(1)
    dynamic = "dynamic" in call.name
    return moves("pointwise", (2 + dynamic) * x.numel, [x], [out], x.dtype)


@costs("_C::per_token_group_fp8_quant", "_C::per_token_group_quant_int8", "sgl_kernel::sgl_per_token_group_quant_8bit")
@costs("sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_group_quant_int8")
@costs("sgl_kernel::sgl_per_token_group_quant_8bit_v2", "_C::per_token_group_fp8_quant_packed")
@costs("sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8")
def quantize_groups(call: Arguments) -> Cost:
    """(input, result, scales, ...)."""
    x = call.tensor(0)
    return moves("pointwise", 3 * x.numel, [x], call.every(1, 3), x.dtype)


@costs("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp")
def cutlass_scaled_mm(call: Arguments) -> Cost:
    """(result[m, n], a[m, k], b[k, n], scales of a, scales of b, ...)."""
    out, a, b = (call.tensor(index) for index in range(3))
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    scales = call.every(3, 5)
    return product(
        a, b, scaled_sizes(a, b, scales), *scales[:1], of_weights=[*scales[1:], *call.every(5)], out=out.dtype
    )


@costs("_C::onednn_mm")
def onednn_mm(call: Arguments) -> Cost:
    """(result[m, n], a[m, k], bias, handler): the handler holds the weight, which has a's type."""
    out, a = call.tensor(0), call.tensor(1)
    weight = a.like((out.shape[-1], a.shape[-1]))
    bias, rows = call.optional(2), a.numel // max(1, a.shape[-1])
    work = Product(1, rows, out.shape[-1], a.shape[-1], bias=bias is not None, weight="b")
    return product(a, weight, work, of_weights=[bias], out=out.dtype)


@costs("_C::weight_packed_linear", at=1)
@costs("vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", at=1)
@costs("sgl_kernel::weight_packed_linear", at=1)
def packed_linear(call: Arguments, at: int) -> Cost:
    """(input[m, k], weight[n, k], ...); the next input may be a bias."""
    a, weight = call.tensor(0), call.tensor(at)
    if "weight_packed" in call.name and len(call) > 4:  # vLLM: (result, input, weight, bias, is_vnni)
        a, weight = call.tensor(1), call.tensor(2)
    fit(len(weight.shape) == 2 and a.shape[-1:] == weight.shape[1:], call.name)
    rows = a.numel // max(1, a.shape[-1])
    return product(a, weight, Product(1, rows, weight.shape[0], weight.shape[1], weight="b"))


@costs("_C::fused_qk_norm_rope")
def norm_and_rotate(call: Arguments) -> Cost:
    """(queries, keys and values, ...): norms and rotates queries and keys in place; values stay."""
    heads = [call.integer(index) for index in (1, 2, 3)]
    qkv = call.tensor(0)
    rotated = qkv.like((qkv.numel * sum(heads[:2]) // max(1, sum(heads)),))
    return moves(
        "norm", (_RMS_FLOPS + _ROTARY_FLOPS) * rotated.numel, [rotated], [rotated], qkv.dtype, work=Norm(False)
    )


@costs("_C::merge_attn_states")
def merge_attention(call: Arguments) -> Cost:
    """(result, its log-sum-exp, result and log-sum-exp of the prefix, those of the suffix)."""
    out = call.tensor(0)
    return moves("pointwise", 3 * out.numel, call.every(2, 6), [out], out.dtype)


@costs("_C::apply_repetition_penalties_")
def repetition_penalties(call: Arguments) -> Cost:
    """(logits, masks of prompt and output, penalties): in place."""
    logits = call.tensor(0)
    return moves("pointwise", 2 * logits.numel, call.every(0, 4), [logits], logits.dtype)


@costs("_C::greedy_argmax")
def greedy_argmax(call: Arguments) -> Cost:
    """(logits[rows, vocabulary])."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [Tensor(x.shape[:-1], FLOAT32)], x.dtype, access="search", row=x.shape[-1])


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
