"""Attention of vLLM and SGLang over paged KV caches, and writes into them.

Schemas: vLLM, csrc/torch_bindings.cpp and vllm-project/flash-attention, csrc/flash_attn/flash_api_torch_lib.cpp;
FlashAttention 3, hopper/flash_api.cpp. A trace does not hold sequence lengths, so all sequences are assumed to have the
recorded maximum length. Costs are upper bounds, exact for equally long sequences.
"""

from math import ceil, log2

import msgspec

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.attention import allowed_positions
from tracekit.analyzers.cost.ops.call import Access, Cost, Family
from tracekit.analyzers.cost.ops.tensors import DTYPES, MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Attention, Backend


class Paged(msgspec.Struct, frozen=True):
    """Positions of the inputs."""

    query: int
    keys: int
    longest: int
    """Maximum length of the key sequences."""
    sequences: int
    """Cumulative lengths of the queries, [batch + 1]; or block tables, [batch, ...]."""
    causal: int = -1
    """Causal flag; -1: always causal."""
    window: int = -1
    """Keys visible to the left; -1: no such input."""
    backend: Backend = ""
    cumulative: bool = True


@costs(
    "_vllm_fa2_C::varlen_fwd",
    at=Paged(query=0, keys=1, longest=11, sequences=4, causal=15, window=16, backend="flash"),
)
@costs(
    "_vllm_fa3_C::fwd",
    "flash_attn_3::fwd",
    "sgl_kernel::fwd",
    at=Paged(query=0, keys=1, longest=13, sequences=7, causal=24, window=25, backend="flash3"),
)
@costs("_C::paged_attention_v1", at=Paged(query=1, keys=2, longest=9, sequences=6, cumulative=False))
@costs("_C::paged_attention_v2", at=Paged(query=4, keys=5, longest=12, sequences=9, cumulative=False))
def paged_attention(call: Arguments, at: Paged) -> Cost:
    """Queries of packed sequences, [tokens, heads, dim], attend to paged keys."""
    q, keys, sequences = call.tensor(at.query), call.tensor(at.keys), call.tensor(at.sequences)
    if len(q.shape) != 3 or not sequences.shape:
        raise MalformedCall(f"{call.name}: {q.shape} is not tokens, heads and dim")
    tokens, heads, dim = q.shape
    batch = sequences.shape[0] - 1 if at.cumulative else sequences.shape[0]
    kv_heads = keys.shape[1] if call.name.startswith("_C::paged") else keys.shape[-2]
    if batch < 1 or not kv_heads or heads % kv_heads:
        raise MalformedCall(f"{call.name}: {heads} heads on {kv_heads}, {batch} sequences")
    return _cost(q, Attention(batch, heads, kv_heads, ceil(tokens / batch), _longest(call, at), dim, True), call, at)


def _longest(call: Arguments, at: Paged) -> int:
    """Return the recorded maximum length, limited by a window."""
    longest, window = call.integer(at.longest), call.integer(at.window, -1)
    return min(longest, window + 1) if window >= 0 else longest


def _cost(q: Tensor, shape: Attention, call: Arguments, at: Paged) -> Cost:
    causal = at.causal < 0 or call.flag(at.causal)
    right = 0 if causal else None
    pairs = allowed_positions(shape.queries, shape.keys, None, right, shape.keys - shape.queries if causal else 0)
    cache = q.like((2, shape.batch, shape.keys, shape.kv_heads, shape.head_dim))
    known = Attention(
        shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.keys, shape.head_dim, causal, at.backend, True
    )
    flops = 4 * shape.batch * shape.heads * pairs * shape.head_dim
    return moves("attention", flops, [q, cache], [q], q.dtype, work=known)


@costs("vllm::unified_attention", "vllm::unified_attention_with_output", "vllm::unified_mla_attention_with_output")
@costs("vllm::unified_mla_attention")
def unified_attention(call: Arguments) -> Cost:
    """(query, key, value, ...): the cache is not among the inputs, so bytes are a lower bound and FLOPs unknown."""
    inputs = call.every(0, 3)
    if not inputs:
        raise MalformedCall(f"{call.name}: no tensor")
    return moves("attention", 0, inputs, [inputs[0]], inputs[0].dtype, estimated=True)


@costs("_C::cpu_attention_with_kv_cache")
def cpu_attention(call: Arguments) -> Cost:
    """(query, key_cache, value_cache, output, query_start_loc, seq_lens, ...): lengths are not recorded."""
    q = call.tensor(0)
    return moves("attention", 0, [q], [q], q.dtype, estimated=True)


@costs("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "_C::cpu_attn_reshape_and_cache")
@costs("vllm::unified_kv_cache_update")
def write_cache(call: Arguments) -> Cost:
    """(key, value, caches, slots, ...): writes new keys and values to their slots."""
    key, value = call.tensor(0), call.tensor(1)
    element = cache.dtype if (cache := call.optional(2)) else key.dtype
    written = [each.like(dtype=element) for each in (key, value)]
    return moves("gather", 0, [key, value, call.optional(4)], written, key.dtype, access="set")


@costs("_C_cache_ops::concat_and_cache_mla")
def write_mla_cache(call: Arguments) -> Cost:
    """(compressed keys and values, rotated keys, cache, slots, ...)."""
    compressed, rotated, cache = (call.tensor(index) for index in range(3))
    written = [each.like(dtype=cache.dtype) for each in (compressed, rotated)]
    return moves("gather", 0, [compressed, rotated, call.optional(3)], written, compressed.dtype, access="set")


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
