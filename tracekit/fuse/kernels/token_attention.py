"""Attention of one new token on a static cache, with its rotation and the writing of its key and value.

A step of one token has a query a head, and PyTorch's kernels a block for each: too few to fill a GPU. Here blocks share
the keys of a head, and the last of them adds what they found. The cache is read before earlier kernels have finished.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from tracekit.fuse.kernels.weight_only_product import _starts_early

KEYS, WARPS = 64, 8
"""Keys that a block reads at once, and its warps."""
_BLOCKS = 256
"""Blocks, at most, unless there are more heads."""
_MOST_HEADS = 65_536
"""Largest number of heads times batch."""


@triton.jit
def _tile(k_ptr, v_ptr, place, end, k_key, v_key, SIZE: tl.constexpr, WIDE: tl.constexpr):
    size = tl.arange(0, WIDE)[None, :]
    read = (place < end)[:, None] & (size < SIZE)
    k = tl.load(k_ptr + place[:, None] * k_key + size, mask=read, other=0.0)
    return k, tl.load(v_ptr + place[:, None] * v_key + size, mask=read, other=0.0)


@triton.jit
def _turned(ptr, size, cos, sin, inside, SIZE: tl.constexpr):
    """Return heads whose halves are rotated. Of the first half, the other elements are subtracted."""
    other = tl.load(ptr + (size + SIZE // 2) % SIZE, mask=inside, other=0.0).to(tl.float32)
    one = tl.load(ptr + size, mask=inside, other=0.0)
    return (one.to(tl.float32) * cos + tl.where(size < SIZE // 2, -other, other) * sin).to(one.dtype)


@triton.jit
def _attended(q, k, v, seen, scale, largest, total, sums, PRECISION: tl.constexpr):
    """Return what the queries have found: the largest score, and the sums of weights and of weighted values."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
    most = tl.maximum(largest, tl.max(scores, axis=1))
    base = tl.where(most == float("-inf"), 0.0, most)
    weights, kept = tl.exp(scores - base[:, None]), tl.exp(largest - base)
    sums = sums * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    return most, total * kept + tl.sum(weights, axis=1), sums


@triton.jit
def _attention(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, keys_ptr, values_ptr, length_ptr, mask_ptr, part_ptr, largest_ptr,
    arrived_ptr, out_ptr, scale, keys, steps, heads, q_batch, k_batch, v_batch, cos_batch, sin_batch,
    keys_batch, keys_head, keys_key, values_batch, values_head, values_key, mask_batch,
    GROUP: tl.constexpr, MOST: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
    SPLITS: tl.constexpr, KEYS: tl.constexpr, EARLY: tl.constexpr, LATE: tl.constexpr, RUN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend with the queries of a head of keys, GROUP of MOST, to a part of its keys; `heads` are those of keys.

    The last block of all counts the new key. LATE: later kernels start when the query is read. With RUN, the n-th 8
    numbers of all runs of so many follow each other in the result.
    """
    if EARLY and not LATE:
        tl.extra.cuda.gdc_launch_dependents()
    at, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, head = at // heads, at % heads
    query, size, key = tl.arange(0, 16)[:, None], tl.arange(0, WIDE)[None, :], tl.arange(0, KEYS)
    keys_ptr += batch * keys_batch + head * keys_head
    values_ptr += batch * values_batch + head * values_head
    first = split * steps * KEYS
    end = tl.minimum(first + steps * KEYS, keys)
    k, v = _tile(keys_ptr, values_ptr, first + key, end, keys_key, values_key, SIZE, WIDE)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    length = tl.load(length_ptr)
    cos = tl.load(cos_ptr + batch * cos_batch + size, mask=size < SIZE, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + batch * sin_batch + size, mask=size < SIZE, other=0.0).to(tl.float32)
    inside = (query < GROUP) & (size < SIZE)
    q = _turned(q_ptr + batch * q_batch + (head * GROUP + query) * SIZE, size, cos, sin, inside, SIZE)
    new_k = _turned(k_ptr + batch * k_batch + head * SIZE, size, cos, sin, size < SIZE, SIZE)
    new_v = tl.load(v_ptr + batch * v_batch + head * SIZE + size, mask=size < SIZE, other=0.0)
    if LATE:  # a kernel that does not need the result may not wait, and write into q
        tl.extra.cuda.gdc_launch_dependents()
    mask_ptr += batch * mask_batch
    masked = tl.load(mask_ptr + first + key, mask=first + key < end, other=0) if MASKED else key
    mine = (size < SIZE) & (first <= length) & (length < end)
    tl.store(keys_ptr + length * keys_key + size, new_k, mask=mine)
    tl.store(values_ptr + length * values_key + size, new_v, mask=mine)
    largest, total = tl.full([16], float("-inf"), tl.float32), tl.zeros([16], tl.float32)
    sums = tl.zeros([16, WIDE], tl.float32)
    for start in range(first, end, KEYS):
        place = start + key
        seen, is_new = (place < end) & (place <= length), place[:, None] == length
        if MASKED:
            seen &= masked != 0
            masked = tl.load(mask_ptr + place + KEYS, mask=place + KEYS < end, other=0)
        k, v = tl.where(is_new, new_k, k), tl.where(is_new, new_v, v)
        largest, total, sums = _attended(q, k, v, seen, scale, largest, total, sums, PRECISION)
        k, v = _tile(keys_ptr, values_ptr, place + KEYS, end, keys_key, values_key, SIZE, WIDE)
    part = (at * SPLITS + split) * MOST
    tl.store(part_ptr + (part + query) * WIDE + size, sums, mask=inside)
    tl.store(largest_ptr + 2 * (part + tl.arange(0, 16)), largest, mask=tl.arange(0, 16) < GROUP)
    tl.store(largest_ptr + 2 * (part + tl.arange(0, 16)) + 1, total, mask=tl.arange(0, 16) < GROUP)
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr + 1 + at, 1, sem="acq_rel") == SPLITS - 1:
        part, to = at * SPLITS * MOST, out_ptr + batch * heads * GROUP * SIZE
        _add(part_ptr + part * WIDE, largest_ptr + 2 * part, to, head, heads, GROUP, MOST, SIZE, WIDE, SPLITS, RUN)
        tl.store(arrived_ptr + 1 + at, 0)
        _count(length_ptr, arrived_ptr, length)


@triton.jit
def _count(length_ptr, arrived_ptr, length):
    """Count the new key, if all heads have read how many there were."""
    if tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(length_ptr, length + 1)
        tl.store(arrived_ptr, 0)


@triton.jit
def _add(
    part_ptr, largest_ptr, out_ptr, head, heads, GROUP: tl.constexpr, MOST: tl.constexpr, SIZE: tl.constexpr,
    WIDE: tl.constexpr, SPLITS: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Write the result from the parts of all blocks of a head, eight at once."""
    query, size = tl.arange(0, MOST)[:, None], tl.arange(0, WIDE)[None, :]
    inside = (query < GROUP) & (size < SIZE)
    most, total = tl.full([MOST, WIDE], float("-inf"), tl.float32), tl.zeros([MOST, WIDE], tl.float32)
    sums = tl.zeros([MOST, WIDE], tl.float32)
    for start in range(0, SPLITS, 8):
        read = ()
        for i in tl.static_range(8):
            at, there = (start + i) * MOST + query + 0 * size, inside & (start + i < SPLITS)
            part = tl.load(part_ptr + at * WIDE + size, mask=there, other=0.0, cache_modifier=".cg")
            largest = tl.load(largest_ptr + 2 * at, mask=there, other=float("-inf"), cache_modifier=".cg")
            read += ((part, largest, tl.load(largest_ptr + 2 * at + 1, mask=there, other=0.0, cache_modifier=".cg")),)
        for i in tl.static_range(8):
            new = tl.maximum(most, read[i][1])
            base = tl.where(new == float("-inf"), 0.0, new)
            weight, kept = tl.exp(read[i][1] - base), tl.exp(most - base)
            total, sums, most = total * kept + read[i][2] * weight, sums * kept + read[i][0] * weight, new
    to = (head * GROUP + query) * SIZE + size
    if RUN:
        to = to % RUN // 8 * (heads * GROUP * SIZE // RUN * 8) + to // RUN * 8 + to % 8
    tl.store(out_ptr + to, sums / tl.where(inside, total, 1.0), mask=inside)


def fused(q, k, v, cos, sin, keys, values, length, mask=None, scale=None, run=0, last=True):
    """Return the attention of one token, (batch, 1, heads, size), whose q and k are not rotated yet.

    q, k and v are (batch, heads, 1, size); at most 16 heads share one of keys. The key and the value are written to the
    cache, contiguous keys and values of (batch, heads of keys, most keys, size), at the place `length`, an int64
    tensor, to which 1 is added. cos and sin are (batch or 1, 1, size). The mask, (batch or 1, 1, 1, most keys), says
    which of the keys are seen; None: all. With a run, the n-th 8 numbers of all runs of so many follow each other in
    the result. last=False: the next kernel waits for this one before it reads or writes what kernels do.

    Other keys must have been written before the last kernel. Calls on one device must follow each other, on one stream.
    """
    batch, heads, _, size = q.shape
    shared, most_keys = keys.shape[1:3]
    tiles = triton.cdiv(most_keys, KEYS)
    steps = triton.cdiv(tiles, max(1, _BLOCKS // (batch * shared)))
    splits, wide = triton.cdiv(tiles, steps), triton.next_power_of_2(size)
    group, most = heads // shared, triton.next_power_of_2(heads // shared)
    out = torch.empty(batch, 1, heads, size, dtype=q.dtype, device=q.device)
    parts = batch * shared * splits * most
    part = torch.empty(parts * (wide + 2), dtype=torch.float32, device=q.device)
    early, seen = _starts_early(q.device), length if mask is None else mask.view(torch.int8)
    new = [each if each[0].is_contiguous() else each.contiguous() for each in (q, k, v, cos, sin)]
    _attention[(batch * shared, splits)](
        *new, keys, values, length, seen, part, part[parts * wide :], _arrived(q.device), out,
        scale or size**-0.5, most_keys, steps, shared, *(0 if len(each) == 1 else each.stride(0) for each in new),
        *keys.stride()[:3], *values.stride()[:3], 0 if mask is None or len(mask) == 1 else mask.stride(0),
        group, most, size, wide, mask is not None, splits, KEYS, early, early and last, run,
        "ieee" if q.dtype == torch.float32 else "tf32", num_warps=WARPS, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return out


@cache
def _arrived(device):
    """Return how many heads are done, and how many blocks of each have their part, which the last one resets."""
    return torch.zeros(1 + _MOST_HEADS, dtype=torch.int32, device=device)


def reference(q, k, v, cos, sin, keys, values, length, mask=None, scale=None):
    q, k = (each * cos[:, None] + _turned_half(each) * sin[:, None] for each in (q, k))
    keys.index_copy_(2, length.reshape(1), k)
    values.index_copy_(2, length.reshape(1), v)
    seen = (torch.arange(keys.shape[2], device=q.device) <= length)[None, None, None]
    length.add_(1)
    keys, values = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (keys, values))
    seen = seen if mask is None else mask & seen
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, seen, scale=scale).transpose(1, 2)


def _turned_half(x):
    one, other = x.chunk(2, -1)
    return torch.cat((-other, one), -1)


def example(dtype, device, batch=1, heads=6, shared=2, keys=257, size=64, length=100):
    q, k, v = (torch.randn(batch, many, 1, size, dtype=dtype, device=device) for many in (heads, shared, shared))
    cos, sin = torch.randn(2, 1, 1, size, dtype=dtype, device=device)
    stored = (torch.randn(batch, shared, keys, size, dtype=dtype, device=device) for _ in range(2))
    mask = torch.rand(batch, 1, 1, keys, device=device) < 0.9
    mask[..., length] = True
    return q, k, v, cos, sin, *stored, torch.tensor(length, device=device), mask
