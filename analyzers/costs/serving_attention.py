"""Attention of vLLM and SGLang over paged KV caches, and writes into them.

Schemas: vLLM, csrc/torch_bindings.cpp and vllm-project/flash-attention, csrc/flash_attn/flash_api_torch_lib.cpp;
FlashAttention 3, hopper/flash_api.cpp. A trace does not hold sequence lengths, so all sequences are assumed to have the
recorded maximum length. Costs are upper bounds, exact for equally long sequences.
"""

from math import ceil

import msgspec

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.attention import allowed_positions
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Tensor
from tracekit.analyzers.costs.work import Attention, Backend


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
