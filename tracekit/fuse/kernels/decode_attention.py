"""Attention of one new token: blocks share the keys of a head, and the last of them adds what they found.

A step of one token has a query a head. PyTorch's kernels have a block for each head, too few to fill a GPU, and with a
mask they read a copy of the cache in which the keys of a group of heads are repeated.
"""

import os
from functools import cache

import torch
import triton
import triton.language as tl

KEYS = 64
"""Keys that a block reads at once."""
_BLOCKS = 256
"""Blocks, at most, unless there are more heads."""
_MOST_HEADS = 65_536
"""Largest number of heads times batch."""
NAME = "tracekit_decode"
"""Name of the attention in transformers."""


@triton.jit
def _attention(
    q_ptr, k_ptr, v_ptr, mask_ptr, part_ptr, largest_ptr, arrived_ptr, out_ptr, scale, keys, steps, heads,
    q_batch, q_head, k_batch, k_head, k_key, v_batch, v_head, v_key, mask_batch,
    GROUP: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr, SPLITS: tl.constexpr,
    MANY: tl.constexpr, KEYS: tl.constexpr, EARLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend with the queries of a head of keys, at most 16, to a part of its keys; `heads` are those of keys."""
    at, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, head = at // heads, at % heads
    query, size, key = tl.arange(0, 16)[:, None], tl.arange(0, WIDE)[None, :], tl.arange(0, KEYS)
    inside = (query < GROUP) & (size < SIZE)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    q = tl.load(q_ptr + batch * q_batch + (head * GROUP + query) * q_head + size, mask=inside, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    largest, total = tl.full([16], float("-inf"), tl.float32), tl.zeros([16], tl.float32)
    sums = tl.zeros([16, WIDE], tl.float32)
    for step in range(steps):
        place = (split * steps + step) * KEYS + key
        there = place < keys
        read = there[:, None] & (size < SIZE)
        k = tl.load(k_ptr + batch * k_batch + head * k_head + place[:, None] * k_key + size, mask=read, other=0.0)
        v = tl.load(v_ptr + batch * v_batch + head * v_head + place[:, None] * v_key + size, mask=read, other=0.0)
        seen = there
        if MASKED:
            seen = tl.load(mask_ptr + batch * mask_batch + place, mask=there, other=0) != 0
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        most = tl.maximum(largest, tl.max(scores, axis=1))
        base = tl.where(most == float("-inf"), 0.0, most)
        weights, kept = tl.exp(scores - base[:, None]), tl.exp(largest - base)
        total = total * kept + tl.sum(weights, axis=1)
        sums = sums * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        largest = most
    to = out_ptr + (at * GROUP + query) * SIZE + size
    if SPLITS == 1:
        tl.store(to, sums / total[:, None], mask=inside)
    else:
        row = (at * SPLITS + split) * 16
        tl.store(part_ptr + (row + query) * WIDE + size, sums, mask=inside)
        tl.store(largest_ptr + (row + tl.arange(0, 16)) * 2, largest)
        tl.store(largest_ptr + (row + tl.arange(0, 16)) * 2 + 1, total)
        tl.debug_barrier()
        if tl.atomic_add(arrived_ptr + at, 1, sem="acq_rel") == SPLITS - 1:
            _add(part_ptr, largest_ptr, to, at, inside, WIDE, SPLITS, MANY)
            tl.store(arrived_ptr + at, 0)


@triton.jit
def _add(part_ptr, largest_ptr, to, at, inside, WIDE: tl.constexpr, SPLITS: tl.constexpr, MANY: tl.constexpr):
    """Write the result from the parts of all blocks of a head."""
    query, size = tl.arange(0, 16)[:, None], tl.arange(0, WIDE)[None, :]
    split = tl.arange(0, MANY)[None, :]
    each = largest_ptr + ((at * SPLITS + split) * 16 + query) * 2
    largest = tl.load(each, mask=split < SPLITS, other=float("-inf"), cache_modifier=".cg")
    most = tl.max(largest, axis=1)
    total = tl.load(each + 1, mask=split < SPLITS, other=0.0, cache_modifier=".cg")
    total = tl.sum(total * tl.exp(largest - most[:, None]), axis=1)
    sums = tl.zeros([16, WIDE], tl.float32)
    for split in tl.static_range(SPLITS):
        row = (at * SPLITS + split) * 16
        part = tl.load(part_ptr + (row + query) * WIDE + size, mask=inside, other=0.0, cache_modifier=".cg")
        part_largest = tl.load(largest_ptr + (row + tl.arange(0, 16)) * 2, cache_modifier=".cg")
        sums += part * tl.exp(part_largest - most)[:, None]
    tl.store(to, sums / total[:, None], mask=inside)


def fused(q, k, v, mask=None, scale=None):
    """Return softmax(q @ k.T * scale + mask) @ v for q (batch, heads, 1, size), as (batch, 1, heads, size).

    k and v are (batch, heads of keys, keys, size); at most 16 heads share one of keys. The mask, (batch or 1, 1, 1,
    keys), says which keys are seen; None: all. Calls on one device must follow each other, on one stream.
    """
    batch, heads, _, size = q.shape
    shared, keys = k.shape[1], k.shape[2]
    tiles = triton.cdiv(keys, KEYS)
    steps = triton.cdiv(tiles, max(1, _BLOCKS // (batch * shared)))
    splits, wide = triton.cdiv(tiles, steps), triton.next_power_of_2(size)
    out = torch.empty(batch, 1, heads, size, dtype=q.dtype, device=q.device)
    part = torch.empty(batch * shared * splits * 16 * (wide + 2), dtype=torch.float32, device=q.device)
    early = _starts_early(q.device)
    seen = q if mask is None else mask.view(torch.int8)
    q, k, v = (each if each.stride(-1) == 1 else each.contiguous() for each in (q, k, v))
    _attention[(batch * shared, splits)](
        q, k, v, seen, part, part[batch * shared * splits * 16 * wide :], _arrived(q.device), out,
        scale or size**-0.5, keys, steps, shared, q.stride(0), q.stride(1), *k.stride()[:3], *v.stride()[:3],
        0 if len(seen) == 1 else seen.stride(0), heads // shared, size, wide, mask is not None, splits,
        triton.next_power_of_2(splits), KEYS, early, "ieee" if q.dtype == torch.float32 else "tf32", num_warps=4,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return out


@cache
def _arrived(device):
    """Return how many blocks of a head have their part, which the last one resets."""
    return torch.zeros(_MOST_HEADS, dtype=torch.int32, device=device)


@cache
def _starts_early(device):
    """Return whether a kernel can start before the one before it has finished, on this device and in this Triton."""
    if os.environ.get("TRITON_INTERPRET") == "1" or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def reference(q, k, v, mask=None, scale=None):
    many = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(many, 1) for each in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale).transpose(1, 2)


def example(dtype, device, batch=1, heads=6, shared=2, keys=257, size=64):
    q = torch.randn(batch, heads, 1, size, dtype=dtype, device=device)
    k, v = (torch.randn(batch, shared, keys, size, dtype=dtype, device=device) for _ in range(2))
    return q, k, v, torch.rand(batch, 1, 1, keys, device=device) < 0.9


def apply(model):
    """Let a model of transformers attend with the kernel, on a GPU one token at a time; otherwise as with "sdpa"."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attend(module, query, key, value, attention_mask, scaling=None, **rest):
        if not _takes(query, key, attention_mask, rest):
            return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
        return _op(query, key, value, attention_mask, scaling), None

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return model


def _takes(query, key, mask, options):
    """Return whether the kernel attends as these arguments say."""
    single = query.is_cuda and query.shape[2] == 1 and not (torch.is_grad_enabled() and query.requires_grad)
    small = query.shape[1] <= 16 * key.shape[1] and query.shape[-1] * query.element_size() <= 512
    plain = mask is None or (mask.dtype == torch.bool and mask.shape[1:3] == (1, 1))
    return single and small and plain and options.get("position_bias") is None and not options.get("softcap")


def remove(model):
    model.set_attn_implementation("sdpa")
    return model


@torch.library.custom_op("tracekit::decode_attention", mutates_args=())
def _op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    return fused(q, k, v, mask, scale)


@_op.register_fake
def _shaped(q, k, v, mask, scale):
    return q.new_empty(q.shape[0], 1, q.shape[1], q.shape[3])
