"""Scaled dot-product attention in all its backends: two GEMMs forward, five backward (2.5 times the FLOPs). Attention
over paged caches of keys and values, and writes into caches and reads from them, of vLLM and SGLang.

Schemas: vLLM, csrc/torch_bindings.cpp and vllm-project/flash-attention, csrc/flash_attn/flash_api_torch_lib.cpp;
FlashAttention 3, hopper/flash_api.cpp. A trace does not hold sequence lengths, so all sequences are assumed to have the
recorded maximum length. Costs of paged attention are upper bounds, exact for equally long sequences."""

from math import ceil

import msgspec

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.registry import formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, MalformedCall, Tensor, promote
from tracekit.analyzers.cost.ops.work import Attention, Backend


class Layout(msgspec.Struct, frozen=True):
    """Positions in the op's schema; -1: the op has no such input. Keys and values follow the queries."""

    query: int = 0
    causal: int = -1
    """The causal flag."""
    mask_type: int = -1
    """A number in its place: 0 none, 1 causal from the top left, 2 from the bottom right."""
    mask: int = -1
    statistics: int = -1
    """The flag that requests log-sum-exps."""
    keeps: bool = False
    """Whether log-sum-exps are always written."""
    sequences_q: int = -1
    """Cumulative lengths of packed sequences, [batch + 1]. Sequences are assumed to be equally long."""
    sequences_k: int = -1
    left: int = -1
    """Keys visible to the left and right of the diagonal, if there is a window."""
    right: int = -1
    heads_last: bool = False
    """[batch, length, heads, dim] (packed: [all lengths, heads, dim]) instead of [batch, heads, length, dim]."""
    bottom_right: bool = False
    """Whether causal attention of unequal lengths is aligned at the last query and key, as in FlashAttention since
    2.1."""

    def sizes(self, call: Arguments, tensor: Tensor, sequences: int) -> tuple[int, int, int]:
        """Return batch, heads and length."""
        cumulative = call.optional(sequences)
        if cumulative is not None and len(tensor.shape) in (3, 4):
            return _packed(tensor, cumulative)
        if len(tensor.shape) == 3 and not self.heads_last:
            return tensor.shape[0], 1, tensor.shape[1]
        if len(tensor.shape) != 4:
            raise MalformedCall(f"{call.name}: {tensor.shape} is not batch, heads, length and dim")
        batch, first, second, _ = tensor.shape
        return (batch, second, first) if self.heads_last else (batch, first, second)

    def causality(self, call: Arguments) -> tuple[bool, bool]:
        """Return whether a causal mask applies, and whether it is aligned to the bottom right."""
        if self.mask_type >= 0:
            kind = call.integer(self.mask_type, 0)
            return kind in (1, 2), kind == 2
        return call.flag(self.causal), self.bottom_right

    def window(self, call: Arguments) -> tuple[int | None, int | None]:
        """Return the number of keys visible to the left and right of the diagonal; None: all."""
        left, right = (call.integer(index, -1) for index in (self.left, self.right))
        return (left if left >= 0 else None), (right if right >= 0 else None)

    def writes_statistics(self, call: Arguments) -> bool:
        return self.keeps or (self.statistics >= 0 and call.flag(self.statistics, default=True))


def _packed(tensor: Tensor, cumulative: Tensor) -> tuple[int, int, int]:
    """Return batch, heads and length of packed sequences with the mean length: a lower bound if lengths differ."""
    batch = cumulative.numel - 1
    *lengths, heads, _ = tensor.shape
    total = lengths[-1] * (lengths[0] if len(lengths) == 2 else 1)
    if batch < 1:
        raise MalformedCall("no packed sequence")
    return batch, heads, total // batch


_BACKENDS: dict[str, Backend] = {
    "_flash_attention": "flash",
    "flash_attn_3": "flash3",
    "flash_attn::": "flash",
    "FlashAttn": "flash",
    "mha_": "flash",
    "xformers_flash": "flash",
    "efficient_attention_forward_cutlass": "efficient",
    "_cudnn_attention": "cudnn",
    "_efficient_attention": "efficient",
}
"""Substring of the op's name -> its backend."""


def allowed_positions(queries: int, keys: int, left: int | None, right: int | None, offset: int = 0) -> int:
    """Return the number of (query, key) pairs with key - query - offset in [-left, right]; None: unbounded on that
    side.

    Causal attention is right = 0, with offset 0 (top-left aligned) or keys - queries (bottom-right aligned).
    """
    if left is not None and right is not None and left + right < 0:
        return 0
    upper = queries * keys if right is None else _sum_of_clamped(queries, offset + right + 1, keys)
    lower = 0 if left is None else _sum_of_clamped(queries, offset - left, keys)
    return upper - lower


def _sum_of_clamped(count: int, start: int, limit: int) -> int:
    """Return the sum of clamp(start + i, 0, limit) for i in range(count)."""
    rising_from = min(max(-start, 0), count)
    rising_to = min(max(limit - start, rising_from), count)
    ramp = rising_to - rising_from
    return ramp * (2 * start + rising_from + rising_to - 1) // 2 + (count - rising_to) * limit


@formula
class attention(Layout, frozen=True):  # noqa: N801 (the name of a formula)
    """softmax(q·kᵀ)·v. Each tensor is read once; the scores are not stored."""

    def __call__(self, call: Arguments) -> Cost:
        q, k, v = (call.tensor(self.query + i) for i in range(3))
        shape, pairs = _geometry(call, self, q, k)
        out = q.like((*q.shape[:-1], v.shape[-1]))
        kept = Tensor((shape.batch, shape.heads, shape.queries), FLOAT32) if self.writes_statistics(call) else None
        flops = 2 * shape.batch * shape.heads * pairs * (q.shape[-1] + v.shape[-1])
        reads = [q, *_touched(call, self, shape, k, v), call.optional(self.mask)]
        return moves("attention", flops, reads, [out, kept], promote([q, k]), work=shape)


@formula
class attention_backward(Layout, frozen=True):  # noqa: N801
    """The gradients of q, k and v. The scores are recomputed from the saved statistics."""

    def __call__(self, call: Arguments) -> Cost:
        q, k, v = (call.tensor(self.query + i) for i in range(3))
        shape, pairs = _geometry(call, self, q, k)
        out = q.like((*q.shape[:-1], v.shape[-1]))
        kept = Tensor((shape.batch, shape.heads, shape.queries), FLOAT32)
        flops = shape.batch * shape.heads * pairs * (6 * q.shape[-1] + 4 * v.shape[-1])
        reads = [q, *_touched(call, self, shape, k, v), out, out, kept, call.optional(self.mask)]
        return moves("attention", flops, reads, [q, k, v], promote([q, k]), work=shape)


def _geometry(call: Arguments, layout: Layout, q: Tensor, k: Tensor) -> tuple[Attention, int]:
    """Return the sizes, and the number of (query, key) pairs computed per head and sequence."""
    batch, heads, queries = layout.sizes(call, q, layout.sequences_q)
    _, kv_heads, keys = layout.sizes(call, k, layout.sequences_k)
    if not kv_heads or heads % kv_heads or q.shape[-1] != k.shape[-1]:
        raise MalformedCall(f"{call.name}: {heads} heads on {kv_heads}")
    causal, bottom_right = layout.causality(call)
    left, right = layout.window(call)
    pairs = allowed_positions(queries, keys, left, 0 if causal else right, keys - queries if bottom_right else 0)
    backend: Backend = next((name for mark, name in _BACKENDS.items() if mark in call.name), "")
    packed = call.optional(layout.sequences_q) is not None
    return Attention(batch, heads, kv_heads, queries, keys, q.shape[-1], causal, backend, packed), pairs


def _touched(call: Arguments, layout: Layout, shape: Attention, *tensors: Tensor) -> list[Tensor]:
    """Return the keys and values that are read. A top-left aligned causal mask hides those after the last query."""
    causal, bottom_right = layout.causality(call)
    if not causal or bottom_right or shape.queries >= shape.keys:
        return list(tensors)
    return [tensor.like((shape.batch, shape.kv_heads, shape.queries, tensor.shape[-1])) for tensor in tensors]


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
