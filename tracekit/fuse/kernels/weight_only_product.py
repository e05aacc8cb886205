"""GEMM with weights of 4 or 8 bits: one kernel reads the quantized weights, scales them, and multiplies.

A GEMM of few rows takes the time to read its weights. Unfused, they are first written in 16 bits and read again. With
more than MOST_ROWS rows that cost is negligible.
"""

import os
from functools import cache

import torch
import triton
import triton.language as tl

MOST_ROWS = 8
"""Largest number of rows for which the kernel does the multiplication."""
CONFIGS = ({"ROWS": 16, "DEEP": 2, "num_warps": 4}, {"ROWS": 8, "DEEP": 4, "num_warps": 4})
"""Launch configurations to try. ROWS is the number of outputs per block, of whose inputs each warp has a part. A thread
has DEEP steps in flight, of 16 bytes of every fourth output. On an H100, the first was fastest for 8 of 9 layers."""
CONFIG = CONFIGS[0]
_MAGIC = 0x4B000000
_MAGIC_PAIR = 0x64006400
"""The bits of the float 2 ** 23, the last of whose mantissa has the value 1, and twice those of 1,024 in fp16."""


@triton.jit
def _value(words, magic, i: tl.constexpr, BITS: tl.constexpr):
    """Return value i of each word. Its bits become the mantissa of 2 ** 23 plus the value, shifted by its place.

    `magic`, the bits of 2 ** 23, is no constant, so that AND and OR are one instruction."""
    FIRST: tl.constexpr = 20 // BITS
    LATER: tl.constexpr = 32 // BITS - FIRST
    if i >= FIRST:
        words = words >> (BITS * LATER)
    place: tl.constexpr = BITS * (i if i < FIRST else i - LATER)
    half: tl.constexpr = 1 << (BITS - 1)
    bits = (words & (2 * half - 1 << place)) | magic
    return bits.to(tl.float32, bitcast=True) * (1.0 / (1 << place)) - (8388608.0 / (1 << place) + half)


@triton.jit
def _halves(pairs, KIND: tl.constexpr):
    """Return the two numbers of type KIND that each integer holds."""
    PLAIN: tl.constexpr = tl.int16 if KIND.primitive_bitwidth == 16 else tl.int32
    low = pairs.to(PLAIN).to(KIND, bitcast=True)
    high = (pairs >> KIND.primitive_bitwidth).to(PLAIN).to(KIND, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def _in_pairs(words, x, sums, magic, i: tl.constexpr, BITS: tl.constexpr):
    """Add two weights of each word, multiplied by a pair of inputs, to two sums in fp16, in three instructions.

    Their bits become the mantissas of 1,024 plus the weight, shifted by its place. The first FMA subtracts the offset
    exactly and divides by 8 times the range, so that the 16 products of a run cannot overflow.
    """
    half: tl.constexpr = 1 << (BITS - 1)
    place: tl.constexpr = BITS * i if BITS * i < 8 else BITS * i - 8
    if BITS * i >= 8:
        words = words >> 8
    mask: tl.constexpr = (2 * half - 1) << place
    by: tl.constexpr = 0x10001 * ((12 - BITS - place) << 10)
    less: tl.constexpr = 0x10001 * (0x8000 | (22 - BITS - place) << 10 | half << place) - 0x100000000
    bits = (words & (0x10001 * mask)) | magic
    return tl.inline_asm_elementwise(
        "{.reg .b32 w; fma.rn.f16x2 w, $1, $4, $5; fma.rn.f16x2 $0, w, $2, $3;}",
        "=r,r,r,r,r,r", [bits, x, sums, by, less], dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _added(one, other):
    """Return the sums of two pairs of numbers in fp16."""
    return tl.inline_asm_elementwise("add.rn.f16x2 $0, $1, $2;", "=r,r,r", [one, other], tl.int32, True, 1)


@triton.jit
def _read(
    weight_ptr, scale_ptr, outputs, i: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    LANES: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """Return the i-th run of words that each thread reads, and its scale: 0 for a run that is not there."""
    thread, output = tl.arange(0, 32 * WARPS), outputs[i % len(outputs)]
    run = thread // 32 * LANES + thread % LANES + i // len(outputs) * LANES * WARPS
    there = tl.minimum(run, K * BITS // 128 - 1)
    words = tl.load(weight_ptr + (output * (K * BITS // 32) + there * 4)[:, None] + tl.arange(0, 4)[None, :])
    scale = tl.load(scale_ptr + output * (K // GROUP) + there * (128 // BITS) // GROUP)
    return words, tl.where(run == there, scale, 0.0)


@triton.jit
def _run_product(words, x, magic, BITS: tl.constexpr, PAIRS: tl.constexpr, KIND: tl.constexpr):
    """Return the product of each thread's run and its inputs, which are 16 / BITS tensors of pairs of type KIND."""
    sums = tl.zeros(words.shape, tl.int32 if PAIRS else tl.float32)
    for i in tl.static_range(16 // BITS):
        if PAIRS:
            sums = _in_pairs(words, x[i], sums, magic, i, BITS)
        else:
            low, high = _halves(x[i], KIND)
            sums += _value(words, magic, i, BITS) * low
            sums += _value(words, magic, i + 16 // BITS, BITS) * high
    low, high = _halves(tl.reduce(sums, 1, _added), tl.float16) if PAIRS else (tl.sum(sums, 1), 0.0)
    return low + high


@triton.jit
def _begun(
    weight_ptr, scale_ptr, outputs, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    LANES: tl.constexpr, DEEP: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """Return the first reads of `_sums`."""
    read = ()
    for i in tl.static_range(min(DEEP, (K * BITS // 128 + LANES * WARPS - 1) // (LANES * WARPS)) * len(outputs)):
        read += (_read(weight_ptr, scale_ptr, outputs, i, K, GROUP, BITS, LANES, WARPS),)
    return read


@triton.jit
def _sums(
    x_ptr, weight_ptr, scale_ptr, outputs, read, magic, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    LANES: tl.constexpr, DEEP: tl.constexpr, WARPS: tl.constexpr, PAIRS: tl.constexpr, LATE: tl.constexpr,
    KIND: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    """Return the products (32 / LANES, EACH) of a row and the weights of EACH outputs for each thread.

    In a step, LANES threads of a warp read runs (of 4 words) of an output; the others, of others. x_ptr is of pairs of
    inputs. With PAIRS, two weights are multiplied by an instruction in fp16, and the sums of runs are added in fp32.
    LATE: later kernels may start when the inputs are read. ORDERED: the n-th 8 inputs of all runs follow each other.
    Tensors are (threads, 4), because releases of Triton distribute those alike.
    """
    EACH: tl.constexpr = len(outputs)
    runs: tl.constexpr = K * BITS // 128
    reads: tl.constexpr = (runs + LANES * WARPS - 1) // (LANES * WARPS) * EACH
    thread, totals = tl.arange(0, 32 * WARPS), ()
    for _ in tl.static_range(EACH):
        totals += (tl.zeros([32 * WARPS], tl.float32),)
    for start in tl.static_range(0, reads, EACH):
        run = tl.minimum(thread // 32 * LANES + thread % LANES + start // EACH * LANES * WARPS, runs - 1)
        x, added = (), ()
        for i in tl.static_range(16 // BITS):
            piece = 4 * (run + i * runs if ORDERED else run * (16 // BITS) + i)
            x += (tl.load(x_ptr + piece[:, None] + tl.arange(0, 4)[None, :]),)
        if LATE and start + EACH == reads:  # a kernel that needs none of these outputs may not wait, and write into x
            tl.extra.cuda.gdc_launch_dependents()
        for i in tl.static_range(start, start + EACH):
            if i + DEEP * EACH < reads:
                read += (_read(weight_ptr, scale_ptr, outputs, i + DEEP * EACH, K, GROUP, BITS, LANES, WARPS),)
            words, scale = read[i]
            part = _run_product(words, x, magic, BITS, PAIRS, KIND)
            added += (totals[i - start] + part * scale.to(tl.float32),)
        totals = added
    for _ in tl.static_range(4):
        if len(totals) > 1:
            pairs = ()
            for i in tl.static_range(len(totals) // 2):
                pairs += (tl.join(totals[i], totals[i + len(totals) // 2]),)
            totals = pairs
    total = totals[0].reshape(WARPS, 32 // LANES, LANES, EACH)
    return tl.sum(tl.sum(total, axis=2), axis=0) * (8 << BITS if PAIRS else 1)


@triton.jit
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, x_stride, magic,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BIAS: tl.constexpr, EACH: tl.constexpr,
    LANES: tl.constexpr, DEEP: tl.constexpr, WARPS: tl.constexpr, PAIRS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Multiply a row by the weights of 32 / LANES * EACH outputs. With EARLY, read them before earlier kernels end."""
    SIDE: tl.constexpr = 32 // LANES
    block, outputs = tl.program_id(0).to(tl.int64) * (SIDE * EACH), ()
    for i in tl.static_range(EACH):
        outputs += (tl.minimum(block + SIDE * i + tl.arange(0, 32 * WARPS) // LANES % SIDE, columns - 1),)
    read = _begun(weight_ptr, scale_ptr, outputs, K, GROUP, BITS, LANES, DEEP, WARPS)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    x_ptr += tl.program_id(1).to(tl.int64) * x_stride
    kind: tl.constexpr = out_ptr.dtype.element_ty
    out = _sums(
        x_ptr, weight_ptr, scale_ptr, outputs, read, magic, K, GROUP, BITS, LANES, DEEP, WARPS, PAIRS, EARLY, kind,
        False,
    )  # fmt: skip
    output = block + tl.arange(0, SIDE)[:, None] + SIDE * tl.arange(0, EACH)[None, :]
    if BIAS:
        out += tl.load(bias_ptr + output, mask=output < columns).to(tl.float32)
    tl.store(out_ptr + tl.program_id(1).to(tl.int64) * columns + output, out, mask=output < columns)


@triton.jit
def _scaled(
    weight_ptr, scale_ptr, out_ptr, magic, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, RUNS: tl.constexpr
):  # fmt: skip
    """Write a row of scaled weights in the type of the result."""
    LENGTH: tl.constexpr = 128 // BITS
    row, run = tl.program_id(0).to(tl.int64), tl.program_id(1) * RUNS + tl.arange(0, RUNS)[:, None]
    inside, word = run < K // LENGTH, tl.arange(0, 4)[None, :]
    words = tl.load(weight_ptr + (row * (K // LENGTH) + run) * 4 + word, mask=inside, other=0)
    scale = tl.load(scale_ptr + row * (K // GROUP) + run * LENGTH // GROUP, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(16 // BITS):
        both = tl.join(_value(words, magic, i, BITS) * scale, _value(words, magic, i + 16 // BITS, BITS) * scale)
        at = out_ptr + row * K + run * LENGTH + 8 * i + 2 * word
        tl.store(at[:, :, None] + tl.arange(0, 2)[None, None, :], both, mask=inside[:, :, None])


def pack(weight, bits=4, group=64):
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    A run of 4 words holds 128 / bits inputs: word w has inputs 8 i + 2 w and 8 i + 2 w + 1 in the i-th bits of its
    lower and its upper half, plus half of the range. A scale is that of the group's largest magnitude, and may be
    negative. Inputs must be a multiple of the group, and the group of 32.
    """
    rows, columns = weight.shape
    if group < 32 or group % 32 or columns % group:
        raise ValueError(f"{columns} inputs are no multiple of a group of {group}, or the group is none of 32.")
    half = 1 << (bits - 1)
    parts = weight.detach().float().reshape(rows, -1, group)
    scale = (-parts.gather(-1, parts.abs().argmax(-1, keepdim=True)) / half).to(weight.dtype)
    scale = torch.where(scale == 0, 1.0, scale)
    values = (parts / scale.float()).round().clamp(-half, half - 1).to(torch.int32) + half
    runs = values.reshape(rows, -1, 16 // bits, 4, 2)
    words = torch.zeros_like(runs[:, :, 0, :, 0])
    for i in range(16 // bits):
        words |= runs[:, :, i, :, 0] << (bits * i) | runs[:, :, i, :, 1] << (bits * i + 16)
    return words.reshape(rows, -1), scale.squeeze(-1).contiguous()


def unpack(packed, scale, bits=4):
    """Return the unpacked weights of `pack` in the type of the scales, in plain PyTorch."""
    runs = packed.reshape(len(packed), -1, 1, 4, 1)
    places = torch.arange(0, 32, bits, device=packed.device, dtype=torch.int32).reshape(2, -1, 1).permute(1, 2, 0)
    values = ((runs >> places) & ((1 << bits) - 1)) - (1 << (bits - 1))
    return (values.to(scale.dtype).reshape(*scale.shape, -1) * scale.unsqueeze(-1)).reshape(len(packed), -1)


def fused(x, packed, scale, bias=None, bits=4):
    """Return x @ weight.T + bias, for weights that `pack` packed."""
    packed, scale = packed.contiguous(), scale.contiguous()
    rows, columns, inputs, group = x.reshape(-1, x.shape[-1]), len(packed), x.shape[-1], x.shape[-1] // scale.shape[1]
    bias = None if bias is None else bias.contiguous()
    if len(rows) > MOST_ROWS:
        wide = torch.empty(columns, inputs, dtype=scale.dtype, device=x.device)
        _scaled[(columns, triton.cdiv(packed.shape[1], 512))](packed, scale, wide, _MAGIC, inputs, group, bits, 128)
        return torch.nn.functional.linear(x, wide, bias)
    if (out := torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)).numel():
        pairs, (block, deep, warps) = x.dtype == torch.float16 and not _is_interpreted(), CONFIG.values()
        early, rows = _starts_early(x.device), _pairs_from(rows)
        _product[(triton.cdiv(columns, block), len(rows))](
            rows, packed, scale, bias, out, columns, rows.stride(0), _MAGIC_PAIR if pairs else _MAGIC, inputs, group,
            bits, bias is not None, block // 4, 8, deep, warps, pairs, early, num_warps=warps,
            **({"launch_pdl": True} if early else {}),
        )  # fmt: skip
    return out


def _pairs_from(rows):
    """Return the rows as integers that hold two numbers each."""
    if rows.stride(-1) != 1 or rows.stride(0) % 8 or rows.storage_offset() % 8:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(torch.int32 if rows.element_size() == 2 else torch.int64)


@cache
def _is_interpreted():
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _starts_early(device):
    """Return whether a kernel can start before the one before it has finished, on this device and in this Triton."""
    if _is_interpreted() or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def reference(x, packed, scale, bias=None, bits=4):
    return torch.nn.functional.linear(x, unpack(packed, scale.to(x.dtype), bits), bias)


def example(dtype, device, rows=1, columns=64, inputs=256, bits=4, group=64):
    weight = torch.randn(columns, inputs, dtype=dtype, device=device) * inputs**-0.5
    x = torch.randn(rows, inputs, dtype=dtype, device=device)
    return x, *pack(weight, bits, group), None, bits
