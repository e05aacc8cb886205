"""GEMM with weights of 4 or 8 bits: one kernel reads the quantized weights, scales them, and multiplies.

A GEMM of few rows takes the time to read its weights. Unfused, they are first written in 16 bits and read again. With
more than MOST_ROWS rows that cost is negligible.
"""

import os
from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl

MOST_ROWS = 8
"""Largest number of rows for which the kernel does the multiplication: that of a product of the tensor cores."""
CONFIGS = ({"ROWS": 16, "DEEP": 4, "num_warps": 8}, {"ROWS": 16, "DEEP": 6, "num_warps": 4})
"""Launch configurations to try. ROWS is the number of outputs per block, a multiple of 16, of whose inputs each warp
has a part. A thread has DEEP steps in flight; a step is 16 bytes of every eighth output."""
CONFIG = CONFIGS[0]
_AHEAD = 3
"""Steps whose inputs a thread reads at once."""


@triton.jit
def _sums(sums, weights, x, HALF: tl.constexpr):
    """Add products of 16 outputs' weights for 16 inputs and of 8 rows to each warp's sums, in its tensor core.

    Thread 4 g + c of a warp has pairs of weights of the outputs g and g + 8, the same of two other inputs, these inputs
    of row g, and sums of the outputs for two rows.
    """
    CODE: tl.constexpr = "mma.sync.aligned.m16n8k16.row.col.f32." + ("f16.f16" if HALF else "bf16.bf16")
    return tl.inline_asm_elementwise(
        CODE + ".f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", weights + x + sums, (tl.float32, tl.float32, tl.float32, tl.float32), True, 1
    )  # fmt: skip


@triton.jit
def _pairs(one, other, place: tl.constexpr, MASK: tl.constexpr, magic):
    """Return the bits at `place` of the halves of two words, then those 8 bits further, each with `magic` added.

    `magic` is no constant, so that AND and OR are one instruction."""
    first, second = one >> place & MASK | magic, other >> place & MASK | magic
    return first, second, one >> (place + 8) & MASK | magic, other >> (place + 8) & MASK | magic


@triton.jit
def _unit(sums, more, words, others, x, i: tl.constexpr, magic, BITS: tl.constexpr, HALF: tl.constexpr):
    """Add the products of 32 inputs, of which a thread has 8.

    In fp16, the bits of an integer are those of a subnormal number, 2 ** 24 times smaller, which tensor cores multiply
    exactly; in bf16, they become those of 128 plus 4 bits. `more` are sums of products that are 16 times too large
    (of 4 bits in fp16) or too small (of 8 bits in bf16).
    """
    MASK: tl.constexpr = 0x00FF00FF if HALF and BITS == 8 else 0x000F000F
    for j in tl.static_range(2):
        one, other = words[(i * 2 + j) * BITS // 8], others[(i * 2 + j) * BITS // 8]
        pair = x[2 * j : 2 * j + 2]
        if HALF and BITS == 4 and j == 1:
            more = _sums(more, _pairs(one, other, 0, 0x00F000F0, magic), pair, HALF)
        else:
            sums = _sums(sums, _pairs(one, other, 4 * j if BITS == 4 else 0, MASK, magic), pair, HALF)
        if BITS == 8 and not HALF:
            more = _sums(more, _pairs(one, other, 4, MASK, magic), pair, HALF)
    return sums, more


@triton.jit
def _four(tensor):
    """Split the last dimension, of four."""
    even, odd = tl.split(tensor.reshape(tensor.shape[0], 2, 2))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _read(words_at, scales_at, step, GROUP: tl.constexpr, WIDE: tl.constexpr, SAME: tl.constexpr):
    """Return the words of an output for each thread in a step, and its scales."""
    scales = ()
    if WIDE == 2 * GROUP:
        scales = tl.split(tl.load(scales_at[:, None] + step[:, None] * 2 + tl.arange(0, 2)[None, :]))
    else:
        for start in tl.static_range(0, WIDE, 32 * SAME):
            scales += (tl.load(scales_at + (step * WIDE + start) // GROUP),)
    return tl.load(words_at), scales


@triton.jit
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, rows, columns, x_stride, magic,
    K: tl.constexpr, GROUP: tl.constexpr, SAME: tl.constexpr, BITS: tl.constexpr, HALF: tl.constexpr,
    BIAS: tl.constexpr, TILES: tl.constexpr, DEEP: tl.constexpr, AHEAD: tl.constexpr, WARPS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Multiply up to 8 rows by the weights of 16 * TILES outputs. In a step, a warp reads 64 bytes of each.

    x_ptr is of pairs of inputs. 32 * SAME inputs of a step have one scale. The offset of integers is a product of the
    same inputs. With EARLY, weights are read before earlier kernels have finished. Thread i has row i of a tensor.
    """
    WIDE: tl.constexpr = 512 // BITS
    STEPS: tl.constexpr = K // WIDE // WARPS
    OFFSET: tl.constexpr = 0x10001 << (BITS - 1) if HALF else (0x45104510 if BITS == 8 else 0x43084308)
    LESS: tl.constexpr = 0x80008000 + OFFSET
    thread, four = tl.arange(0, 32 * WARPS), tl.arange(0, 4)[None, :]
    warp, g, c, zero = thread // 32, thread % 32 // 4, thread % 4, tl.zeros([32 * WARPS], tl.float32)
    first = tl.program_id(0).to(tl.int64) * (16 * TILES)
    words_at, scales_at, totals, read, inputs = (), (), (), (), ()
    for i in tl.static_range(2 * TILES):
        output = tl.minimum(first + 8 * i + g, columns - 1)
        words_at += (weight_ptr + (output * (K * BITS // 32) + warp * 16 + c * 4)[:, None] + four,)
        scales_at += (scale_ptr + output * (K // GROUP),)
        totals += (zero, zero)
    for i in tl.static_range(min(DEEP, STEPS)):
        for t in tl.static_range(2 * TILES):
            read += (_read(words_at[t] + i * WARPS * 16, scales_at[t], warp + i * WARPS, GROUP, WIDE, SAME),)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    x_at = x_ptr + (tl.minimum(g, rows - 1) * x_stride + warp * (WIDE // 2) + c * 4)[:, None] + four
    for i in tl.static_range(STEPS):
        if i % AHEAD == 0:
            for u in tl.static_range(i * WIDE // 32, min(i + AHEAD, STEPS) * WIDE // 32):
                inputs += (_four(tl.load(x_at + (u * 32 // WIDE * (WARPS - 1) * WIDE // 2 + u * 16))),)
            if EARLY:  # Kernels after this one may read what those before it wrote. Reads before this stay there.
                tl.extra.cuda.gdc_launch_dependents()
        for t in tl.static_range(2 * TILES if i + DEEP < STEPS else 0):
            at, step = words_at[t] + (i + DEEP) * WARPS * 16, warp + (i + DEEP) * WARPS
            read += (_read(at, scales_at[t], step, GROUP, WIDE, SAME),)
        words = ()
        for t in tl.static_range(2 * TILES):
            words += (_four(read[i * 2 * TILES + t][0]),)
        for part in tl.static_range(WIDE // 32 // SAME):
            offset, added = (zero, zero, zero, zero), ()
            x = inputs[i * WIDE // 32 + part * SAME : i * WIDE // 32 + part * SAME + SAME]
            for u in tl.static_range(SAME):
                offset = _sums(offset, (LESS, LESS, LESS, LESS), x[u][:2], HALF)
                offset = _sums(offset, (LESS, LESS, LESS, LESS), x[u][2:], HALF)
            for t in tl.static_range(0, 2 * TILES, 2):
                sums, more = offset, (zero, zero, zero, zero)
                for u in tl.static_range(SAME):
                    sums, more = _unit(sums, more, words[t], words[t + 1], x[u], part * SAME + u, magic, BITS, HALF)
                for r in tl.static_range(4):
                    scale = read[i * 2 * TILES + t + r // 2][1][part].to(tl.float32)
                    sum = sums[r] + more[r] * (16 if BITS == 8 else 0.0625)
                    added += (totals[2 * t + r] + sum * scale,)
            totals = added
    lane = tl.arange(0, 32)[:, None]
    row = 2 * (lane % 4) + four % 2
    for t in tl.static_range(TILES):
        total = tl.join(tl.join(totals[4 * t], totals[4 * t + 2]), tl.join(totals[4 * t + 1], totals[4 * t + 3]))
        out = tl.sum(total.reshape(WARPS, 32, 4), axis=0) * (16777216.0 if HALF else 1.0)
        output = first + 16 * t + lane // 4 + 8 * (four // 2)
        if BIAS:
            out += tl.load(bias_ptr + output, mask=output < columns).to(tl.float32)
        tl.store(out_ptr + row * columns + output, out, mask=(row < rows) & (output < columns))


@triton.jit
def _first_input(word, K: tl.constexpr, BITS: tl.constexpr):
    """Return the first input of each word of an output."""
    UNITS: tl.constexpr = 16 // BITS if K % (512 // BITS) == 0 else 1
    EACH: tl.constexpr = BITS // 4
    thread, unit = word // (UNITS * EACH), word // EACH % UNITS
    return (thread // 4 * UNITS + unit) * 32 + thread % 4 * 8 + word % EACH * 4


@triton.jit
def _value(words, i: tl.constexpr, BITS: tl.constexpr):
    """Return the value of input i of each word."""
    PLACE: tl.constexpr = i // 2 % 2 * 8 + i // 4 * 4 + i % 2 * 16
    return ((words >> PLACE & ((1 << BITS) - 1)) - (1 << (BITS - 1))).to(tl.float32)


@triton.jit
def _plain_product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, K: tl.constexpr, GROUP: tl.constexpr,
    BITS: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Multiply a row by the weights of ROWS outputs without tensor cores: in fp32, or of sizes that fill no step."""
    WORDS: tl.constexpr = K * BITS // 32
    output = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there, x_ptr = tl.minimum(output, columns - 1)[:, None], x_ptr + tl.program_id(1).to(tl.int64) * K
    total = tl.zeros([ROWS, 64], tl.float32)
    for start in range(0, WORDS, 64):
        word = start + tl.arange(0, 64)
        inside, at = word < WORDS, _first_input(word, K, BITS)
        words = tl.load(weight_ptr + there * WORDS + word[None, :], mask=inside[None, :], other=0)
        scale = tl.load(scale_ptr + there * (K // GROUP) + (at // GROUP)[None, :], mask=inside[None, :], other=0.0)
        for i in tl.static_range(32 // BITS):
            x = tl.load(x_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
            total += _value(words, i, BITS) * scale.to(tl.float32) * x[None, :]
    out = tl.sum(total, axis=1)
    if BIAS:
        out += tl.load(bias_ptr + output, mask=output < columns).to(tl.float32)
    tl.store(out_ptr + tl.program_id(1).to(tl.int64) * columns + output, out, mask=output < columns)


@triton.jit
def _scaled(
    weight_ptr, scale_ptr, out_ptr, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, MANY: tl.constexpr
):  # fmt: skip
    """Write MANY words' scaled weights of an output in the type of the result."""
    row, word = tl.program_id(0).to(tl.int64), tl.program_id(1) * MANY + tl.arange(0, MANY)
    inside, at = word < K * BITS // 32, _first_input(word, K, BITS)
    words = tl.load(weight_ptr + row * (K * BITS // 32) + word, mask=inside, other=0)
    scale = tl.load(scale_ptr + row * (K // GROUP) + at // GROUP, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(32 // BITS):
        tl.store(out_ptr + row * K + at + i, _value(words, i, BITS) * scale, mask=inside)


def pack(weight, bits=4, group=64):
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    16 words of an output are for four threads of the tensor cores: each has 8 inputs of every 32. Value 4 a + 2 b + h
    of a word, plus half of the range, is at bit 4 a + 8 b + 16 h. A scale is that of the group's largest magnitude, and
    may be negative. Inputs must be a multiple of the group, and the group of 32.
    """
    rows, columns = weight.shape
    if group < 32 or group % 32 or columns % group:
        raise ValueError(f"{columns} inputs are no multiple of a group of {group}, or the group is none of 32.")
    half = 1 << (bits - 1)
    parts = weight.detach().float().reshape(rows, -1, group)
    scale = (-parts.gather(-1, parts.abs().argmax(-1, keepdim=True)) / half).to(weight.dtype)
    scale = torch.where(scale == 0, 1.0, scale)
    values = (parts / scale.float()).round().clamp(-half, half - 1).to(torch.int32) + half
    values = values.reshape(rows, -1, _units(columns, bits), 4, bits // 4, 8 // bits, 2, 2).transpose(2, 3)
    words = (values << _places(bits, values.device)).sum((-3, -2, -1), dtype=torch.int32)
    return words.reshape(rows, -1), scale[..., 0].contiguous()


def unpack(packed, scale, bits=4):
    """Return the unpacked weights of `pack` in the type of the scales, in plain PyTorch."""
    rows, units = len(packed), _units(packed.shape[1] * 32 // bits, bits)
    words = packed.reshape(rows, -1, 4, units, bits // 4, 1, 1, 1).transpose(2, 3)
    values = (words >> _places(bits, packed.device) & ((1 << bits) - 1)) - (1 << (bits - 1))
    parts = values.to(scale.dtype).reshape(rows, scale.shape[1], -1)
    return (parts * scale.unsqueeze(-1)).reshape(rows, -1)


def _units(inputs, bits):
    """Return how many 32 inputs four threads have words of; 1: the kernel does not use tensor cores."""
    return 16 // bits if inputs % (512 // bits) == 0 else 1


def _places(bits, device):
    """Return the places of a word's values."""
    a, b, h = (torch.arange(many, device=device, dtype=torch.int32) for many in (8 // bits, 2, 2))
    return 4 * a[:, None, None] + 8 * b[:, None] + 16 * h


def fused(x, packed, scale, bias=None, bits=4):
    """Return x @ weight.T + bias, for weights that `pack` packed."""
    packed, scale = packed.contiguous(), scale.contiguous()
    rows, columns, inputs = x.reshape(-1, x.shape[-1]), len(packed), x.shape[-1]
    group, bias = inputs // scale.shape[1], None if bias is None else bias.contiguous()
    if len(rows) > MOST_ROWS:
        return torch.nn.functional.linear(x, _unpacked(packed, scale, inputs, group, bits), bias)
    if (out := torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)).numel():
        if x.element_size() == 2 and inputs % (512 // bits) == 0 and _has_tensor_cores(x.device):
            early, half, rows = _starts_early(x.device), x.dtype == torch.float16, _pairs_from(rows)
            block, deep, warps = CONFIG.values()
            warps = gcd(warps, inputs * bits // 512)
            _product[(triton.cdiv(columns, block),)](
                rows, packed, scale, bias, out, len(rows), columns, rows.stride(0), 0 if half else 0x43004300, inputs,
                group, gcd(group, 512 // bits) // 32, bits, half, bias is not None, block // 16, deep, _AHEAD, warps,
                early, num_warps=warps, **({"launch_pdl": True} if early else {}),
            )  # fmt: skip
        else:
            _plain_product[(triton.cdiv(columns, 8), len(rows))](
                rows.contiguous(), packed, scale, bias, out, columns, inputs, group, bits, bias is not None, 8
            )
    return out


def _pairs_from(rows):
    """Return the rows as integers that hold two numbers each."""
    if rows.stride(-1) != 1 or rows.stride(0) % 8 or rows.storage_offset() % 8:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(torch.int32)


@cache
def _has_tensor_cores(device):
    """Return whether the device multiplies 16 numbers of 16 bits at once, as `_sums` does."""
    return os.environ.get("TRITON_INTERPRET") != "1" and torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _starts_early(device):
    """Return whether a kernel can start before the one before it has finished, on this device and in this Triton."""
    return hasattr(tl.extra.cuda, "gdc_wait") and torch.cuda.get_device_capability(device) >= (9, 0)


def _unpacked(packed, scale, inputs, group, bits):
    out = torch.empty(len(packed), inputs, dtype=scale.dtype, device=packed.device)
    _scaled[(len(packed), triton.cdiv(packed.shape[1], 512))](packed, scale, out, inputs, group, bits, 512)
    return out


def reference(x, packed, scale, bias=None, bits=4):
    return torch.nn.functional.linear(x, unpack(packed, scale.to(x.dtype), bits), bias)


def example(dtype, device, rows=1, columns=64, inputs=256, bits=4, group=64):
    weight = torch.randn(columns, inputs, dtype=dtype, device=device) * inputs**-0.5
    x = torch.randn(rows, inputs, dtype=dtype, device=device)
    return x, *pack(weight, bits, group), None, bits
