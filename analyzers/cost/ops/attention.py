"""Scaled dot-product attention in all its backends: two GEMMs forward, five backward (2.5 times the FLOPs)."""

from dataclasses import dataclass, replace
from typing import Literal

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.tensors import FLOAT32, MalformedCall, Tensor, promote
from tracekit.analyzers.cost.ops.work import Attention, Backend


@dataclass(frozen=True)
class Layout:
    """Positions in the op's schema; -1: the op has no such input."""

    causal: int
    """Position of the causal flag, or with `mask_type` of a number: 0 none, 1 causal from the top left, 2 from the
    bottom right."""
    query: int = 0
    order: Literal["heads first", "heads last"] = "heads first"
    """[batch, heads, length, dim], or [batch, length, heads, dim] (packed: [all lengths, heads, dim])."""
    masks: tuple[int, ...] = ()
    statistics: int | None = None
    """Position of the flag that requests log-sum-exps; -1: always written; None: never."""
    mask_type: bool = False
    bottom_right: bool = False
    """Whether causal attention of unequal lengths is aligned at the last query and key, as in FlashAttention since
    2.1."""
    sequences_q: int = -1
    """Position of the cumulative lengths of packed sequences, [batch + 1]. Sequences are assumed to be equally long."""
    sequences_k: int = -1
    windows: tuple[int, int] = (-1, -1)

    def sizes(self, call: Arguments, tensor: Tensor, sequences: int) -> tuple[int, int, int]:
        """Return batch, heads and length."""
        cumulative = call.optional(sequences)
        if cumulative is not None and len(tensor.shape) in (3, 4):
            return _packed(tensor, cumulative)
        if len(tensor.shape) == 3 and self.order == "heads first":
            return tensor.shape[0], 1, tensor.shape[1]
        if len(tensor.shape) != 4:
            raise MalformedCall(f"{call.name}: {tensor.shape} is not batch, heads, length and dim")
        batch, first, second, _ = tensor.shape
        return (batch, first, second) if self.order == "heads first" else (batch, second, first)

    def causality(self, call: Arguments) -> tuple[bool, bool]:
        """Return whether a causal mask applies, and whether it is aligned to the bottom right."""
        if self.mask_type:
            kind = call.integer(self.causal, 0)
            return kind in (1, 2), kind == 2
        causal = call.flag(self.causal)
        return causal, self.bottom_right

    def window(self, call: Arguments) -> tuple[int | None, int | None]:
        """Return the number of keys visible to the left and right of the diagonal; None: all."""
        left, right = (call.integer(index, -1) for index in self.windows)
        return (left if left >= 0 else None), (right if right >= 0 else None)

    def writes_statistics(self, call: Arguments) -> bool:
        return self.statistics is not None and (self.statistics < 0 or call.flag(self.statistics, default=True))


def _packed(tensor: Tensor, cumulative: Tensor) -> tuple[int, int, int]:
    """Return batch, heads and length of packed sequences with the mean length: a lower bound if lengths differ."""
    batch = cumulative.numel - 1
    *lengths, heads, _ = tensor.shape
    total = lengths[-1] * (lengths[0] if len(lengths) == 2 else 1)
    if batch < 1:
        raise MalformedCall("no packed sequence")
    return batch, heads, total // batch


_FLASH = Layout(causal=-1, order="heads last", bottom_right=True, statistics=-1)
_EFFICIENT = Layout(causal=-1, order="heads last", mask_type=True)

FORWARD: list[tuple[tuple[str, ...], Layout]] = [
    (
        (
            "aten::scaled_dot_product_attention",
            "aten::_scaled_dot_product_attention_math",
            "aten::_scaled_dot_product_attention_math_for_mps",
        ),
        Layout(causal=5, masks=(3,)),
    ),
    (("aten::_scaled_dot_product_flash_attention",), Layout(causal=4, statistics=-1)),
    (("aten::_scaled_dot_product_flash_attention_for_cpu",), Layout(causal=4, masks=(5,), statistics=-1)),
    (
        ("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention"),
        Layout(causal=6, masks=(3,), statistics=4),
    ),
    (
        ("aten::_scaled_dot_product_fused_attention_overrideable",),
        Layout(causal=5, masks=(3,), statistics=-1),
    ),
    (
        ("aten::_flash_attention_forward",),
        replace(_FLASH, causal=8, masks=(14,), sequences_q=3, sequences_k=4, windows=(11, 12)),
    ),
    (
        ("aten::_efficient_attention_forward", "xformers::efficient_attention_forward_cutlass"),
        replace(_EFFICIENT, causal=9, masks=(3,), statistics=10, sequences_q=4, sequences_k=5),
    ),
    (
        ("aten::_cudnn_attention_forward",),
        Layout(causal=10, masks=(3,), statistics=8, sequences_q=4, sequences_k=5),
    ),
    (
        ("flash_attn::_flash_attn_forward", "aiter::_flash_attn_forward"),
        replace(_FLASH, causal=5, windows=(6, 7), masks=(9,)),
    ),
    (
        ("flash_attn::_flash_attn_varlen_forward",),
        replace(_FLASH, causal=9, sequences_q=3, sequences_k=4, windows=(10, 11)),
    ),
    (("FlashAttnFunc",), replace(_FLASH, causal=5)),
    (("xformers_flash::flash_fwd",), replace(_FLASH, causal=10, sequences_q=3, sequences_k=4, windows=(11, 12))),
    (("FlashAttnVarlenFunc",), replace(_FLASH, causal=9, sequences_q=3, sequences_k=4)),
    (
        ("aiter::mha_fwd", "aiter::fmha_v3_fwd", "aiter::wrapper_fmha_v3_fwd"),
        replace(_FLASH, causal=5, windows=(6, 7)),
    ),
    (
        ("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd"),
        replace(_FLASH, causal=12, sequences_q=3, sequences_k=4, windows=(13, 14)),
    ),
]

BACKWARD: list[tuple[tuple[str, ...], Layout]] = [
    (("aten::_scaled_dot_product_flash_attention_backward",), Layout(query=1, causal=11)),
    (("aten::_scaled_dot_product_flash_attention_for_cpu_backward",), Layout(query=1, causal=7, masks=(8,))),
    (("aten::_scaled_dot_product_efficient_attention_backward",), Layout(query=1, causal=11, masks=(4,))),
    (
        ("aten::_scaled_dot_product_cudnn_attention_backward", "aten::_cudnn_attention_backward"),
        Layout(query=1, causal=14, masks=(8,), sequences_q=9, sequences_k=10),
    ),
    (("aten::_scaled_dot_product_fused_attention_overrideable_backward",), Layout(query=1, causal=13, masks=(4,))),
    (
        ("aten::_flash_attention_backward",),
        replace(_FLASH, query=1, causal=11, sequences_q=6, sequences_k=7, windows=(15, 16)),
    ),
    (
        ("aten::_efficient_attention_backward",),
        replace(_EFFICIENT, query=1, causal=14, masks=(4,), sequences_q=6, sequences_k=7),
    ),
    (
        ("flash_attn::_flash_attn_backward", "aiter::_flash_attn_backward"),
        replace(_FLASH, query=1, causal=11, windows=(12, 13)),
    ),
    (
        ("flash_attn::_flash_attn_varlen_backward",),
        replace(_FLASH, query=1, causal=15, sequences_q=9, sequences_k=10, windows=(16, 17)),
    ),
    (
        ("aiter::mha_bwd", "aiter::fmha_v3_bwd", "aiter::wrapper_fmha_v3_bwd"),
        replace(_FLASH, query=1, causal=8, windows=(9, 10)),
    ),
]


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
