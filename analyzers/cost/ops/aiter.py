"""Ops of AMD's AITER, which PyTorch, vLLM, SGLang and xDiT call on Instinct GPUs.

Schemas: ROCm/aiter, aiter/ops (mha.py, norm.py, rmsnorm.py, gemm_op_a8w8.py, activation.py, quant.py, moe_op.py). Fused
attention is described with the other layouts of attention.
"""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, product, scaled_product
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Tensor
from tracekit.analyzers.cost.ops.work import Norm, Product

_BF16 = DTYPES["bfloat16"]
_RMS_FLOPS, _LAYER_FLOPS = 4, 8
"""FLOPs per element of an RMS norm and of a layer norm with weight and bias."""
_CACHE_RANK = 4
"""Number of dimensions of caches, and of queries and keys with their heads."""


@costs("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::rmsnorm2d_fwd_ck", "aiter::rms_norm_cu", flops=_RMS_FLOPS)
@costs("aiter::layernorm2d_fwd", "aiter::layer_norm", "aiter::_groupnorm_run", flops=_LAYER_FLOPS)
def norm(call: Arguments, flops: int) -> Cost:
    """(input, weight, ...), or (result, input, weight, ...): the weight is the first row."""
    tensors = call.every()
    weight = next((each for each in tensors if len(each.shape) == 1), None)
    x = tensors[0]
    return moves("norm", flops * x.numel, [x, weight], [x], x.dtype, row=x.shape[-1], work=Norm(flops > _RMS_FLOPS))


@costs("aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck", "aiter::add_rmsnorm", results=2)
@costs("aiter::rmsnorm", "aiter::rmsnorm2d_fwd_with_dynamicquant", "aiter::rmsnorm_quant", results=1)
@costs("aiter::rmsnorm2d_fwd_with_dynamicquant_ck", "aiter::rmsnorm2d_fwd_with_smoothquant", results=1)
@costs("aiter::rmsnorm2d_fwd_with_add_dynamicquant", "aiter::add_rmsnorm_quant", results=2)
@costs("aiter::rmsnorm2d_fwd_with_add_dynamicquant_ck", "aiter::rmsnorm2d_fwd_with_add_smoothquant", results=2)
@costs("aiter::layernorm2d_fwd_with_add", results=2)
def norm_into(call: Arguments, results: int) -> Cost:
    """(result, input, the sum's summand and result if it adds one, scales if it quantizes, weight, ...)."""
    tensors = call.every()
    out, x = tensors[0], tensors[1]
    flops = (_LAYER_FLOPS if "layernorm" in call.name else _RMS_FLOPS) + (results - 1)
    reads = [x] * results + [each for each in tensors[2:] if each.shape == x.shape[-1:]][:2]
    kind = Norm("layernorm" in call.name)
    return moves("norm", flops * x.numel, reads, [out, *[x] * (results - 1)], x.dtype, row=x.shape[-1], work=kind)


@costs("aiter::gemm_a16w16", "aiter::gemm_a16w16_", "aiter::gemm_a16w16_atomic_", "aiter::_gemm_a16w16_asm")
@costs("aiter::gemm_a8w8", "aiter::gemm_a8w8_ck", "aiter::gemm_a8w8_asm", "aiter::gemm_a8w8_cktile")
@costs("aiter::gemm_a8w8_bpreshuffle", "aiter::gemm_a8w8_bpreshuffle_ck", "aiter::gemm_a8w8_bpreshuffle_cktile")
@costs("aiter::gemm_a8w8_blockscale", "aiter::gemm_a8w8_blockscale_ck", "aiter::gemm_a8w8_blockscale_cktile")
@costs("aiter::gemm_a8w8_blockscale_bpreshuffle", "aiter::gemm_a8w8_blockscale_bpreshuffle_ck")
@costs("aiter::gemm_a8w8_blockscale_bpreshuffle_cktile", "aiter::gemm_a8w8_blockscale_bpreshuffle_")
@costs("aiter::_gemm_a8w8_blockscale_bpreshuffle_asm", "aiter::flatmm_a8w8_blockscale_asm")
@costs("aiter::gfx950_a8w8_blockscale_asm", "vllm::rocm_aiter_gemm_w8a8", "vllm::rocm_aiter_gemm_w8a8_blockscale")
@costs("vllm::rocm_aiter_gemm_a8w8_blockscale", "vllm::rocm_aiter_triton_gemm_a8w8_blockscale")
@costs("vllm::_rocm_aiter_preshuffled_per_token_w8a8_gemm", "vllm::rocm_aiter_tuned_gemm")
def activations_by_weight(call: Arguments) -> Cost:
    """(a[m, k], weights[n, k], scales ...): the result is in 16 bits."""
    a, weight = call.tensor(0), call.tensor(1)
    scales = [each for each in call.every(2) if each.dtype == FLOAT32 and each.numel < weight.numel]
    return scaled_product(call.name, a, weight, scales, a.dtype if a.dtype.bytes > 1 else _BF16)


@costs("aiter::gemm_afp4wfp4", "aiter::gemm_afp4wfp4_", "aiter::gemm_a4w4", "aiter::gemm_a4w4_asm")
@costs("aiter::gemm_a4w4_blockscale", "vllm::gemm_with_dynamic_quant")
def linear_in_four_bits(call: Arguments) -> Cost:
    """(a[m, k / 2] or [m, k], weights[n, k / 2], ...): two elements per byte."""
    a, weight = call.tensor(0), call.tensor(1)
    fit(len(weight.shape) == 2, call.name)
    inner = 2 * weight.shape[1]
    fit(a.shape[-1] in (inner, weight.shape[1]), call.name)
    work = Product(1, prod(a.shape[:-1]), weight.shape[0], inner, weight="b", stored="int4")
    return product(a, weight, work, of_weights=call.every(3, 4), out=_BF16, compute=_BF16)


@costs("aiter::silu_and_mul", "aiter::scaled_silu_and_mul", activation=5)
@costs("aiter::gelu_and_mul", "aiter::gelu_tanh_and_mul", activation=8)
def gated_activation(call: Arguments, activation: int) -> Cost:
    """(result[..., d], input[..., 2 d], ...)."""
    out, x = call.tensor(0), call.tensor(1)
    return moves("pointwise", (activation + 1) * out.numel, [x], [out], x.dtype)


@costs("aiter::static_per_tensor_quant", "aiter::dynamic_per_tensor_quant", "aiter::dynamic_per_token_scaled_quant")
@costs("aiter::dynamic_per_group_scaled_quant", "aiter::dynamic_per_group_scaled_quant_fp4")
@costs("aiter::smoothquant_fwd", "aiter::moe_smoothquant_fwd")
def quantize_into(call: Arguments) -> Cost:
    """(result, input, scales, ...)."""
    out, x = call.tensor(0), call.tensor(1)
    return moves("pointwise", 3 * x.numel, [x, *call.every(3, 4)], [out, call.optional(2)], x.dtype)


@costs("aiter::topk_softmax", "aiter::topk_softmax_asm", "aiter::topk_sigmoid", "aiter::biased_grouped_topk_hip")
@costs("aiter::biased_grouped_topk", "aiter::grouped_topk", "aiter::moe_fused_gate", "aiter::moe_sorting_fwd")
@costs("aiter::moe_sorting_opus_fwd", "aiter::moe_align_block_size", "aiter::moe_sum", "aiter::reshape_and_cache")
@costs("aiter::fused_qk_rope_concat_and_cache_mla", "aiter::mixed_sample_outer_exponential")
def small_parts(call: Arguments) -> Cost:
    """Count each tensor once, but a cache only up to the size of the largest other tensor."""
    tensors = sorted(call.every(), key=lambda each: each.numel)
    fit(len(tensors) > 1, call.name)
    most = max((each.numel for each in tensors if len(each.shape) < _CACHE_RANK), default=tensors[-1].numel)
    touched = [each if each.numel <= most else each.like((most,)) for each in tensors]
    return moves("gather", 0, touched, [], tensors[-1].dtype, access="indexed")


@costs("aiter::rope_cached_positions_2c_fwd_impl", "aiter::rope_cached_2c_fwd_impl", "aiter::rope_2c_fwd_impl")
@costs("aiter::rope_fwd_impl", "aiter::rope_cached_fwd_impl", "aiter::rope_cached_positions_fwd_impl")
def rotate(call: Arguments) -> Cost:
    """(results ..., inputs ..., tables, positions): half of the tensors with heads are results."""
    tensors = call.every()
    rotated = [each for each in tensors if len(each.shape) == _CACHE_RANK and each.shape[-2] > 1]
    fit(len(rotated) > 1, call.name)
    out = rotated[: len(rotated) // 2]
    reads = [*rotated[len(out) :], *(Tensor((out[0].numel // out[0].shape[-2],), out[0].dtype) for _ in range(2))]
    return moves("pointwise", 3 * sum(each.numel for each in out), reads, out, out[0].dtype)
