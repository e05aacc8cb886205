"""Ops of vLLM and SGLang that mostly move data: caches, states, rotations, sampling, and layers with a state.

Schemas: vLLM, csrc/torch_bindings.cpp and the ops that its Python registers (direct_register_custom_op); SGLang,
sgl-kernel/csrc/common_extension.cc.
"""

from math import log2

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Access, Cost, Family
from tracekit.analyzers.costs.dtypes import DTYPES
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall

_MERGE_FLOPS, _GATE_FLOPS, _ROTARY_FLOPS, _CONVOLUTION = 3, 8, 3, 2
_BYTE = DTYPES["uint8"]


@costs("sgl_kernel::merge_state", "sgl_kernel::merge_state_v2", flops=_MERGE_FLOPS)
@costs("_C::silu_and_mul_per_block_quant", "_C::persistent_masked_m_silu_mul_quant", flops=_GATE_FLOPS)
@costs("_C_cache_ops::concat_mla_q", "_C_cache_ops::convert_fp8")
@costs("sgl_kernel::concat_mla_k", "sgl_kernel::concat_mla_absorb_q", "vllm::maybe_calc_kv_scales")
@costs("sgl_kernel::top_k_renorm_probs", "sgl_kernel::top_p_renorm_probs", family="reduction", access="rows", flops=1)
@costs("sgl_kernel::top_p_sampling_from_probs", "sgl_kernel::min_p_sampling_from_probs", family="reduction", flops=1)
@costs("sgl_kernel::top_k_top_p_sampling_from_probs", family="reduction", access="search", flops=1)
@costs("_C::top_k_per_row_prefill", "_C::top_k_per_row_decode", family="reduction", access="top-k", flops=1)
def each_once(call: Arguments, family: Family = "pointwise", access: Access = "linear", flops: int = 0) -> Cost:
    """Reads or writes each tensor once, with `flops` for each element of the largest one."""
    tensors = call.every()
    if not tensors:
        raise MalformedCall(f"{call.name}: no tensor")
    largest = max(tensors, key=lambda each: each.numel)
    row = largest.shape[-1] if largest.shape and family == "reduction" else 0
    return moves(family, flops * largest.numel, tensors, [], largest.dtype, access=access, row=row)


@costs("_C::persistent_topk")
def top_k(call: Arguments) -> Cost:
    """(logits, lengths, indices, workspace, ...)."""
    logits = call.tensor(0)
    row = logits.shape[-1]
    return moves("reduction", logits.numel, [logits], [call.tensor(2)], logits.dtype, access="top-k", row=row)


@costs("vllm::mamba_mixer", "vllm::mamba_mixer2", "vllm::plamo2_mamba_mixer", "vllm::short_conv")
@costs("vllm::linear_attention", "vllm::gdn_attention", "vllm::gdn_attention_core", "vllm::kda_attention")
@costs("vllm::sparse_attn_indexer", "_C::selective_scan_fwd")
def layer_with_state(call: Arguments) -> Cost:
    """Inputs and result: states and weights are not among the inputs, so bytes are a lower bound and FLOPs unknown."""
    tensors = call.every()
    if not tensors:
        raise MalformedCall(f"{call.name}: no tensor")
    return moves("attention", 0, tensors, [], tensors[0].dtype, estimated=True)


@costs("_C::cutlass_mla_decode", "_C::sm100_cutlass_mla_decode", "sgl_kernel::cutlass_mla_decode")
def latent_attention(call: Arguments) -> Cost:
    """(result, ..., query, rotated query, cache, ...): lengths are not recorded, so bytes are a lower bound."""
    small = sorted(call.every(0, 4), key=lambda each: each.numel)[:3]
    return moves("attention", 0, small, [], small[0].dtype, estimated=True)


@costs("_C_cache_ops::gather_cache", "_C_cache_ops::cp_gather_cache", "_C_cache_ops::gather_and_maybe_dequant_cache")
@costs("_C_cache_ops::cp_gather_and_upconvert_fp8_kv_cache")
def gather_cache(call: Arguments) -> Cost:
    """(cache, result, ...): reads from the cache what it writes."""
    cache, out = call.tensor(0), call.tensor(1)
    return moves("gather", 0, [out.like(dtype=cache.dtype)], [out], out.dtype, access="indexed")


@costs("_C_cache_ops::cp_gather_indexer_k_quant_cache")
def gather_quantized_cache(call: Arguments) -> Cost:
    """(cache, keys, scales, ...)."""
    out = call.every(1, 3)
    return moves("gather", 0, out, out, call.tensor(1).dtype, access="indexed")


@costs("_C_cache_ops::indexer_k_quant_and_cache", keys=(0,), slots=2)
@costs("sgl_kernel::downcast_fp8", keys=(0, 1), slots=6)
def write_quantized(call: Arguments, keys: tuple[int, ...], slots: int) -> Cost:
    """Writes keys and values in 8 bits to their slots."""
    new = [call.tensor(index) for index in keys]
    written = [each.like(dtype=_BYTE) for each in new]
    return moves("gather", sum(each.numel for each in new), [*new, call.optional(slots)], written, new[0].dtype)


@costs("sgl_kernel::store_kv_cache", keys=(3, 4), slots=2)
@costs("vllm::unified_mla_kv_cache_update", keys=(0, 1), slots=-1)
def write_to_slots(call: Arguments, keys: tuple[int, ...], slots: int) -> Cost:
    """Writes keys and values to their slots."""
    new = [call.tensor(index) for index in keys]
    return moves("gather", 0, [*new, call.optional(slots)], new, new[0].dtype, access="set")


@costs("_C_cache_ops::concat_and_cache_mla_rope_fused")
def rotate_and_write(call: Arguments) -> Cost:
    """(positions, rotated query, rotated key, compressed keys and values, table, ..., slots, cache, ...)."""
    positions, query, key, compressed = (call.tensor(index) for index in range(4))
    flops = _ROTARY_FLOPS * (query.numel + key.numel)
    reads = [positions, query, key, compressed, call.optional(6)]
    return moves("pointwise", flops, reads, [query, key, compressed], query.dtype, access="indexed")


@costs("sgl_kernel::apply_rope_pos_ids_cos_sin_cache")
def rotate(call: Arguments) -> Cost:
    """(query, key, rotated query, rotated key, table, positions, ...)."""
    inputs, rotated, positions = call.every(0, 2), call.every(2, 4), call.tensor(5)
    table = call.tensor(4)
    touched = table.like((min(positions.numel, table.shape[0]), *table.shape[1:]))
    flops = _ROTARY_FLOPS * sum(each.numel for each in inputs)
    return moves("pointwise", flops, [*inputs, touched, positions], rotated, inputs[0].dtype, access="indexed")


@costs("_C::causal_conv1d_fwd", weights=1)
@costs("_C::causal_conv1d_update", weights=2)
def convolve_states(call: Arguments, weights: int) -> Cost:
    """(inputs, ...): each channel with its own few weights, in place; the states that are kept are small."""
    x, weight = call.tensor(0), call.tensor(weights)
    taps = weight.shape[-1]
    return moves("convolution", _CONVOLUTION * taps * x.numel, [x, weight], [x], x.dtype, weight=weight)


@costs("_C::hadacore_transform")
def hadamard(call: Arguments) -> Cost:
    """(values, in place): a sum for each element and each doubling of the row."""
    x = call.tensor(0)
    return moves("pointwise", round(x.numel * log2(max(2, x.shape[-1]))), [x], [x], x.dtype)
