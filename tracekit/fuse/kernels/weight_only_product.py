"""GEMM with weights of 4 or 8 bits: one kernel reads the quantized weights, scales them, and multiplies.

A GEMM of few rows takes the time to read its weights: a quarter (4 bits) or half (8 bits) of that with 16 bits.
Unfused, the weights are first written in 16 bits and read again. With more than MOST_ROWS rows that cost is negligible:
one kernel scales the weights, and the library multiplies.
"""

import torch
import triton
import triton.language as tl

MOST_ROWS = 8
"""Largest number of rows for which the kernel does the multiplication."""
CONFIGS = (
    {"ROWS": 8, "num_warps": 4},
    {"ROWS": 4, "num_warps": 4},
    {"ROWS": 8, "num_warps": 2},
    {"ROWS": 4, "num_warps": 2},
    {"ROWS": 4, "num_warps": 1},
    {"ROWS": 2, "num_warps": 4},
)
"""Launch configurations to try, best first. ROWS is the number of outputs per block; each thread reads 16 bytes of each
at a time."""
CONFIG = CONFIGS[0]
_MAGIC = 0x4B000000
"""The bits of the float 2 ** 23. The last bit of its mantissa has the value 1."""


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
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, x_stride, magic,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, RUNS: tl.constexpr,
):  # fmt: skip
    """Multiply a row by the weights of ROWS outputs. A thread reads one run (the 4 words of `pack`) of each output at a
    time."""
    run_length: tl.constexpr = 128 // BITS
    runs: tl.constexpr = K // run_length
    column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < columns
    row = tl.program_id(1).to(tl.int64)
    word = tl.arange(0, 4)[None, None, :]
    weight_at = weight_ptr + column.to(tl.int64)[None, :, None] * (4 * runs) + word
    scale_at = scale_ptr + column[None, :] * (K // GROUP)
    x_at = x_ptr + row * x_stride + word
    total = tl.zeros([RUNS, ROWS], tl.float32)
    for start in range(0, runs, RUNS):
        run = start + tl.arange(0, RUNS)
        fits = (run < runs)[:, None]
        there = fits & inside[None, :]
        words = tl.load(weight_at + run[:, None, None] * 4, mask=there[:, :, None], other=0)
        scale = tl.load(scale_at + run[:, None] * run_length // GROUP, mask=there, other=0.0).to(tl.float32)
        part = tl.zeros([RUNS, ROWS, 4], tl.float32)
        for i in tl.static_range(32 // BITS):
            at = (run * run_length + 4 * i)[:, None, None]
            part += _value(words, magic, i, BITS) * tl.load(x_at + at, mask=fits[:, :, None], other=0.0).to(tl.float32)
        total += tl.sum(part, axis=2) * scale
    out = tl.sum(total, axis=0)
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
    row = tl.program_id(0).to(tl.int64)
    run = tl.program_id(1) * RUNS + tl.arange(0, RUNS)[:, None]
    inside, word = run < runs, tl.arange(0, 4)[None, :]
    words = tl.load(weight_ptr + (row * runs + run) * 4 + word, mask=inside, other=0)
    scale = tl.load(scale_ptr + row * (K // GROUP) + run * run_length // GROUP, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(32 // BITS):
        at = out_ptr + row * K + run * run_length + 4 * i + word
        tl.store(at, _value(words, magic, i, BITS) * scale, mask=inside)


def pack(weight, bits=4, group=64):
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    A run of 4 words holds 128 / bits inputs: word w has input 4 i + w in its i-th bits from below, plus half of the
    range. The number of inputs must be a multiple of the group, and the group of 32.
    """
    rows, columns = weight.shape
    if group < 32 or group % 32 or columns % group:
        raise ValueError(
            f"{columns} inputs are not a multiple of a group of {group}, or the group is not a multiple of 32."
        )
    half = 1 << (bits - 1)
    parts = weight.detach().float().reshape(rows, -1, group)
    scale = (parts.abs().amax(-1, keepdim=True) / (half - 1)).clamp(min=1e-10).to(weight.dtype)
    values = (parts / scale.float()).round().clamp(-half, half - 1).to(torch.int32) + half
    runs = values.reshape(rows, -1, 32 // bits, 4)
    words = torch.zeros_like(runs[:, :, 0])
    for i in range(32 // bits):
        words |= runs[:, :, i] << (bits * i)
    return words.reshape(rows, -1), scale.squeeze(-1).contiguous()


def unpack(packed, scale, bits=4):
    """Return the unpacked weights of `pack` in the type of the scales, in plain PyTorch."""
    runs = packed.reshape(len(packed), -1, 1, 4)
    places = torch.arange(0, 32, bits, device=packed.device, dtype=torch.int32).reshape(-1, 1)
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
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
    if out.numel():
        warps = min(CONFIG["num_warps"], triton.next_power_of_2(triton.cdiv(packed.shape[1], 128)))
        _product[(triton.cdiv(columns, CONFIG["ROWS"]), len(rows))](
            rows, packed, scale, bias, out, columns, rows.stride(0), _MAGIC, inputs, group, bits, bias is not None,
            ROWS=CONFIG["ROWS"], RUNS=32 * warps, num_warps=warps,
        )  # fmt: skip
    return out


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


def moved_bytes(x, packed, scale, bias=None, bits=4):
    """Return the least number of bytes to move: the packed weights, their scales, the input and the output."""
    return packed.nbytes + scale.nbytes + x.nbytes + x.nbytes // x.shape[-1] * len(packed)
