"""Scaled dot-product attention in all its backends: two GEMMs forward, five backward (2.5 times the FLOPs)."""

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.attention_layouts import BACKWARD, FORWARD, Layout
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import FLOAT32
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Tensor, promote
from tracekit.analyzers.costs.work import Attention, Backend

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


def forward(call: Arguments, layout: Layout) -> Cost:
    """Return the cost of softmax(q·kᵀ)·v. Each tensor is read once; the scores are not stored."""
    q, k, v = (call.tensor(layout.query + i) for i in range(3))
    shape, pairs = _geometry(call, layout, q, k)
    head_dims = q.shape[-1] + v.shape[-1]
    out = q.like((*q.shape[:-1], v.shape[-1]))
    statistics = Tensor((shape.batch, shape.heads, shape.queries), FLOAT32) if layout.writes_statistics(call) else None
    return moves(
        "attention",
        2 * shape.batch * shape.heads * pairs * head_dims,
        [q, *_touched(call, layout, shape, k, v), *map(call.optional, layout.masks)],
        [out, statistics],
        promote([q, k]),
        work=shape,
    )


def backward(call: Arguments, layout: Layout) -> Cost:
    """Return the cost of the gradients of q, k and v. The scores are recomputed from the saved statistics."""
    q, k, v = (call.tensor(layout.query + i) for i in range(3))
    shape, pairs = _geometry(call, layout, q, k)
    out = q.like((*q.shape[:-1], v.shape[-1]))
    statistics = Tensor((shape.batch, shape.heads, shape.queries), FLOAT32)
    flops = shape.batch * shape.heads * pairs * (6 * q.shape[-1] + 4 * v.shape[-1])
    touched = _touched(call, layout, shape, k, v)
    reads = [q, *touched, out, out, statistics, *map(call.optional, layout.masks)]
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


for _names, _layout in FORWARD:
    costs(*_names, layout=_layout)(forward)
for _names, _layout in BACKWARD:
    costs(*_names, layout=_layout)(backward)
