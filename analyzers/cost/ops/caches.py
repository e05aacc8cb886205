"""Writes into caches of keys and values, reads from them, and attention over paged ones, of vLLM and SGLang.

Schemas: vLLM, csrc/torch_bindings.cpp and vllm-project/flash-attention, csrc/flash_attn/flash_api_torch_lib.cpp;
FlashAttention 3, hopper/flash_api.cpp. A trace does not hold sequence lengths, so all sequences are assumed to have the
recorded maximum length. Costs are upper bounds, exact for equally long sequences.
"""

from math import ceil

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.attention import allowed_positions
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.registry import formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, MalformedCall
from tracekit.analyzers.cost.ops.work import Attention, Backend

_ROTARY_FLOPS = 3
_CACHE_RANK = 4
"""Number of dimensions of caches, and of queries and keys with their heads."""
_BYTE = DTYPES["uint8"]


@formula
def paged_attention(
    call: Arguments,
    query: int,
    keys: int,
    longest: int,
    sequences: int = -1,
    blocks: int = -1,
    causal: int = -1,
    window: int = -1,
    backend: Backend = "",
) -> Cost:
    """Queries of packed sequences, [tokens, heads, dim], attend to paged keys, up to `longest`.

    `sequences` are cumulative lengths of the queries, [batch + 1], or `blocks` are tables of blocks, [batch, ...].
    Without a flag, `causal`; `window` is the number of keys visible to the left.
    """
    q, cached, batches = call.tensor(query), call.tensor(keys), call.tensor(max(sequences, blocks))
    if len(q.shape) != 3 or not batches.shape:
        raise MalformedCall(f"{call.name}: {q.shape} is not tokens, heads and dim")
    tokens, heads, dim = q.shape
    batch = batches.shape[0] - 1 if blocks < 0 else batches.shape[0]
    kv_heads = cached.shape[-2] if blocks < 0 else cached.shape[1]
    if batch < 1 or not kv_heads or heads % kv_heads:
        raise MalformedCall(f"{call.name}: {heads} heads on {kv_heads}, {batch} sequences")
    queries, length = ceil(tokens / batch), call.integer(longest)
    if (left := call.integer(window, -1)) >= 0:
        length = min(length, left + 1)
    hidden = causal < 0 or call.flag(causal)
    pairs = allowed_positions(queries, length, None, 0 if hidden else None, length - queries if hidden else 0)
    cache = q.like((2, batch, length, kv_heads, dim))
    work = Attention(batch, heads, kv_heads, queries, length, dim, hidden, backend, True)
    return moves("attention", 4 * batch * heads * pairs * dim, [q, cache], [q], q.dtype, work=work)


@formula
def latent_attention(call: Arguments) -> Cost:
    """(result, ..., query, rotated query, cache, ...): lengths are not recorded, so bytes are a lower bound."""
    small = sorted(call.every(0, 4), key=lambda each: each.numel)[:3]
    return moves("attention", 0, small, [], small[0].dtype, estimated=True)


@formula
def merge_attention(call: Arguments) -> Cost:
    """(result, its log-sum-exp, result and log-sum-exp of the prefix, those of the suffix)."""
    out = call.tensor(0)
    return moves("pointwise", 3 * out.numel, call.every(2, 6), [out], out.dtype)


@formula
def write_cache(call: Arguments, key: int, value: int, cache: int = -1, slots: int = -1) -> Cost:
    """Writes new keys and values to their slots, in the type of the cache."""
    new, held = [call.tensor(key), call.tensor(value)], call.optional(cache)
    written = [each.like(dtype=held.dtype if held else None) for each in new]
    return moves("gather", 0, [*new, call.optional(slots)], written, new[0].dtype, access="set")


@formula
def write_quantized(call: Arguments, key: int, slots: int, value: int = -1) -> Cost:
    """Writes keys and values in 8 bits to their slots."""
    new = [call.tensor(index) for index in (key, value) if index >= 0]
    written = [each.like(dtype=_BYTE) for each in new]
    return moves("gather", sum(each.numel for each in new), [*new, call.optional(slots)], written, new[0].dtype)


@formula
def rotate_and_write(call: Arguments) -> Cost:
    """(positions, rotated query, rotated key, compressed keys and values, table, ..., slots, cache, ...)."""
    positions, query, key, compressed = (call.tensor(index) for index in range(4))
    flops = _ROTARY_FLOPS * (query.numel + key.numel)
    reads = [positions, query, key, compressed, call.optional(6)]
    return moves("pointwise", flops, reads, [query, key, compressed], query.dtype, access="indexed")


@formula
def gather_cache(call: Arguments, cache: int, result: int) -> Cost:
    """Reads from the cache what it writes."""
    out = call.tensor(result)
    return moves("gather", 0, [out.like(dtype=call.tensor(cache).dtype)], [out], out.dtype, access="indexed")


@formula
def gather_quantized_cache(call: Arguments) -> Cost:
    """(cache, keys, scales, ...)."""
    out = call.every(1, 3)
    return moves("gather", 0, out, out, call.tensor(1).dtype, access="indexed")


@formula
def each_part(call: Arguments) -> Cost:
    """Counts each tensor once, but a cache only up to the size of the largest other tensor."""
    tensors = sorted(call.every(), key=lambda each: each.numel)
    fit(len(tensors) > 1, call.name)
    most = max((each.numel for each in tensors if len(each.shape) < _CACHE_RANK), default=tensors[-1].numel)
    touched = [each if each.numel <= most else each.like((most,)) for each in tensors]
    return moves("gather", 0, touched, [], tensors[-1].dtype, access="indexed")
