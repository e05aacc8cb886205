"""GEMM with weights of 4 or 8 bits: one kernel reads the quantized weights, scales them, and multiplies.

A GEMM of few rows takes the time to read its weights: a quarter (4 bits) or half (8 bits) of that with 16 bits.
Unfused, they are first written in 16 bits and read again. With more than MOST_ROWS rows that cost is negligible.
"""

import os
from functools import cache

import torch
import triton
import triton.language as tl

MOST_ROWS = 8
"""Largest number of rows for which the kernel does the multiplication."""
CONFIGS = (
    {},
    {"ROWS": 2, "DEEP": 4, "num_warps": 4},
    {"ROWS": 4, "DEEP": 4, "num_warps": 4},
    {"ROWS": 8, "DEEP": 2, "num_warps": 4},
    {"ROWS": 8, "DEEP": 2, "num_warps": 2},
)
"""Launch configurations to try; {}: that of `launch_for`. ROWS is the number of outputs per block. A thread has DEEP
runs of each in flight, of 16 bytes."""
CONFIG = CONFIGS[0]
BLOCKS = 8
"""Blocks of four warps that a multiprocessor runs at once, from times of four layers on an H100."""
_MAGIC = 0x4B000000
"""The bits of the float 2 ** 23. The last bit of its mantissa has the value 1."""
_MAGIC_PAIR = 0x64006400
"""Twice the bits of 1,024 in fp16."""


@triton.jit
def _value(words, magic, i: tl.constexpr, BITS: tl.constexpr):
    """Return value i of each word, in two or three instructions.

    Its bits become the mantissa of a float without a conversion: 2 ** 23 plus the value, shifted by its place. `magic`
    is 2 ** 23 as an argument, not a constant, so that AND and OR are one instruction.
    """
    VALUES: tl.constexpr = 32 // BITS
    FIRST: tl.constexpr = 20 // BITS
    if i >= FIRST:
        words = words >> (BITS * (VALUES - FIRST))
    place: tl.constexpr = BITS * (i if i < FIRST else i - (VALUES - FIRST))
    half: tl.constexpr = 1 << (BITS - 1)
    mask: tl.constexpr = (2 * half - 1) << place
    bits = (words & mask) | magic
    return bits.to(tl.float32, bitcast=True) * (1.0 / (1 << place)) - (8388608.0 / (1 << place) + half)


@triton.jit
def _halves(pairs, KIND: tl.constexpr):
    """Return the two numbers of type KIND that each integer holds."""
    WIDTH: tl.constexpr = KIND.primitive_bitwidth
    PLAIN: tl.constexpr = tl.int16 if WIDTH == 16 else tl.int32
    low = pairs.to(PLAIN).to(KIND, bitcast=True)
    high = (pairs >> WIDTH).to(PLAIN).to(KIND, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def _in_pairs(words, x, sums, magic, i: tl.constexpr, BITS: tl.constexpr):
    """Add two weights of each word, multiplied by a pair of inputs, to two sums in fp16, in three instructions.

    Their bits become the mantissas of 1,024 plus the weight, shifted by its place. The first FMA subtracts the offset
    exactly and divides by twice the range, so that the sums of a run cannot overflow.
    """
    half: tl.constexpr = 1 << (BITS - 1)
    place: tl.constexpr = BITS * i if BITS * i < 8 else BITS * i - 8
    if BITS * i >= 8:
        words = words >> 8
    mask: tl.constexpr = (2 * half - 1) << place
    by: tl.constexpr = 0x10001 * ((14 - BITS - place) << 10)
    less: tl.constexpr = 0x10001 * (0x8000 | (24 - BITS - place) << 10 | half << place) - 0x100000000
    bits = (words & (0x10001 * mask)) | magic
    return tl.inline_asm_elementwise(
        "{.reg .b32 w; fma.rn.f16x2 w, $1, $4, $5; fma.rn.f16x2 $0, w, $2, $3;}",
        "=r,r,r,r,r,r", [bits, x, sums, by, less], dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _unpaired(total):
    """Return the sum of two numbers in fp16, in fp32."""
    return tl.inline_asm_elementwise(
        """{.reg .b16 l, h; .reg .f32 a, b; mov.b32 {l, h}, $1;
        cvt.f32.f16 a, l; cvt.f32.f16 b, h; add.f32 $0, a, b;}""",
        "=f,r", [total], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, x_stride, magic,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, RUNS: tl.constexpr, PAIRS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Multiply a row by the weights of ROWS outputs. A thread reads whole runs (the 4 words of `pack`) of each output.

    x_ptr is of pairs of inputs. With PAIRS, two weights are multiplied by an instruction in fp16, and every 16 products
    are added in fp32. With EARLY, weights are read before the kernels that came before have finished.
    """
    run_length: tl.constexpr = 128 // BITS
    runs: tl.constexpr = K // run_length
    pairs: tl.constexpr = 16 // BITS
    column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < columns
    row = tl.program_id(1).to(tl.int64)
    word = tl.arange(0, 4)[None, None, :]
    weight_at = weight_ptr + column.to(tl.int64)[:, None, None] * (4 * runs) + word
    scale_at = scale_ptr + column[:, None] * (K // GROUP)
    x_at = x_ptr + row * x_stride + word
    run = tl.arange(0, RUNS)
    there = inside[:, None] & (run < runs)[None, :]
    words = tl.load(weight_at + run[None, :, None] * 4, mask=there[:, :, None], other=0)
    scale = tl.load(scale_at + run[None, :] * run_length // GROUP, mask=there, other=0.0).to(tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    total = tl.zeros([ROWS, RUNS], tl.float32)
    for start in tl.static_range(0, runs, RUNS):
        run = start + tl.arange(0, RUNS)
        if start:
            there = inside[:, None] & (run < runs)[None, :]
            words = tl.load(weight_at + run[None, :, None] * 4, mask=there[:, :, None], other=0)
            scale = tl.load(scale_at + run[None, :] * run_length // GROUP, mask=there, other=0.0).to(tl.float32)
        at = x_at + (run * (run_length // 2))[None, :, None]
        fits = (run < runs)[None, :, None]
        if PAIRS:
            sums = tl.zeros([ROWS, RUNS, 4], tl.int32)
            for i in tl.static_range(pairs):
                x = tl.load(at + 4 * i, mask=fits, other=0)
                sums = _in_pairs(words, x, sums, magic, i, BITS)
            part = _unpaired(sums)
        else:
            part = tl.zeros([ROWS, RUNS, 4], tl.float32)
            for i in tl.static_range(pairs):
                low, high = _halves(tl.load(at + 4 * i, mask=fits, other=0), out_ptr.dtype.element_ty)
                part += _value(words, magic, i, BITS) * low + _value(words, magic, i + pairs, BITS) * high
        total += tl.sum(part, axis=2) * scale
    out = tl.sum(total, axis=1)
    if PAIRS:
        out = out * (2 << BITS)
    if BIAS:
        out += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, out, mask=inside)


@triton.jit
def _scaled(
    weight_ptr, scale_ptr, out_ptr, magic, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, RUNS: tl.constexpr
):  # fmt: skip
    """Write a row of scaled weights in the type of the result."""
    run_length: tl.constexpr = 128 // BITS
    runs: tl.constexpr = K // run_length
    pairs: tl.constexpr = 16 // BITS
    row = tl.program_id(0).to(tl.int64)
    run = tl.program_id(1) * RUNS + tl.arange(0, RUNS)[:, None]
    inside, word = run < runs, tl.arange(0, 4)[None, :]
    words = tl.load(weight_ptr + (row * runs + run) * 4 + word, mask=inside, other=0)
    scale = tl.load(scale_ptr + row * (K // GROUP) + run * run_length // GROUP, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(pairs):
        both = tl.join(_value(words, magic, i, BITS) * scale, _value(words, magic, i + pairs, BITS) * scale)
        at = out_ptr + row * K + run * run_length + 8 * i + 2 * word
        tl.store(at[:, :, None] + tl.arange(0, 2)[None, None, :], both, mask=inside[:, :, None])


def pack(weight, bits=4, group=64):
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    A run of 4 words holds 128 / bits inputs: word w has inputs 8 i + 2 w and 8 i + 2 w + 1 in the i-th bits of its
    lower and its upper half, plus half of the range. The scale is the one of those tried with the least squared error;
    it may be negative. Inputs must be a multiple of the group, and the group of 32.
    """
    rows, columns = weight.shape
    if group < 32 or group % 32 or columns % group:
        raise ValueError(f"{columns} inputs are no multiple of a group of {group}, or the group is none of 32.")
    half = 1 << (bits - 1)
    parts = weight.detach().float().reshape(rows, -1, group)
    full = -parts.gather(-1, parts.abs().argmax(-1, keepdim=True)) / half
    tried = torch.stack([full * share for share in ((1.0, 8 / 7, 0.92, 0.84) if bits < 8 else (1.0,))]).to(weight.dtype)
    wide = (tried := torch.where(tried == 0, 1.0, tried)).float()
    errors = ((parts / wide).round().clamp(-half, half - 1) * wide - parts).square().sum(-1, keepdim=True)
    scale = tried.gather(0, errors.argmin(0, keepdim=True))[0]
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
    parts = values.to(scale.dtype).reshape(len(packed), scale.shape[1], -1)
    return (parts * scale.unsqueeze(-1)).reshape(len(packed), -1)


def fused(x, packed, scale, bias=None, bits=4):
    """Return x @ weight.T + bias, for weights that `pack` packed."""
    packed, scale = packed.contiguous(), scale.contiguous()
    bias = None if bias is None else bias.contiguous()
    rows, columns, inputs = x.reshape(-1, x.shape[-1]), len(packed), x.shape[-1]
    group = inputs // scale.shape[1]
    if len(rows) > MOST_ROWS:
        return torch.nn.functional.linear(x, _unpacked(packed, scale, inputs, group, bits), bias)
    out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
    if out.numel():
        pairs = x.dtype == torch.float16 and not _is_interpreted()
        runs, early = packed.shape[1] // 4, _starts_early(x.device)
        launch = CONFIG or launch_for(columns, _multiprocessors(x.device))
        warps = min(launch["num_warps"], triton.next_power_of_2(triton.cdiv(runs, 32)))
        most = min(32 * warps * launch["DEEP"], triton.next_power_of_2(runs))
        rows = _pairs_from(rows)
        _product[(triton.cdiv(columns, launch["ROWS"]), len(rows))](
            rows, packed, scale, bias, out, columns, rows.stride(0), _MAGIC_PAIR if pairs else _MAGIC, inputs, group,
            bits, bias is not None, launch["ROWS"], most, pairs, early, num_warps=warps,
            **({"launch_pdl": True} if early else {}),
        )  # fmt: skip
    return out


def launch_for(columns, multiprocessors):
    """Return the launch configuration for a number of outputs: the fewest per block with which all blocks run at once.

    Fewer outputs per block are more bytes in flight; blocks that wait for others begin a second round of reads.
    """
    rows = next((each for each in (2, 4) if triton.cdiv(columns, each) <= BLOCKS * multiprocessors), 8)
    return {"ROWS": rows, "DEEP": min(4, 16 // rows), "num_warps": 4}


@cache
def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _pairs_from(rows):
    """Return the rows as integers that hold two numbers each."""
    pair = torch.int32 if rows.element_size() == 2 else torch.int64
    if rows.stride(-1) != 1 or rows.stride(0) % 8 or rows.storage_offset() % 8:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(pair)


@cache
def _is_interpreted():
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _starts_early(device):
    """Return whether a kernel can start before the one before it has finished, on this device and in this Triton."""
    if _is_interpreted() or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def _unpacked(packed, scale, inputs, group, bits):
    out = torch.empty(len(packed), inputs, dtype=scale.dtype, device=packed.device)
    _scaled[(len(packed), triton.cdiv(packed.shape[1], 512))](packed, scale, out, _MAGIC, inputs, group, bits, 128)
    return out


def reference(x, packed, scale, bias=None, bits=4):
    return torch.nn.functional.linear(x, unpack(packed, scale.to(x.dtype), bits), bias)


def example(dtype, device, rows=1, columns=64, inputs=256, bits=4, group=64):
    weight = torch.randn(columns, inputs, dtype=dtype, device=device) * inputs**-0.5
    x = torch.randn(rows, inputs, dtype=dtype, device=device)
    return x, *pack(weight, bits, group), None, bits
