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
    {"ROWS": 8, "BLOCK": 512, "num_warps": 4},
    {"ROWS": 4, "BLOCK": 1024, "num_warps": 4},
    {"ROWS": 16, "BLOCK": 256, "num_warps": 4},
    {"ROWS": 4, "BLOCK": 512, "num_warps": 2},
    {"ROWS": 8, "BLOCK": 1024, "num_warps": 8},
    {"ROWS": 2, "BLOCK": 1024, "num_warps": 2},
    {"ROWS": 1, "BLOCK": 2048, "num_warps": 2},
)
"""Launch configurations to try, best first. ROWS is the number of outputs per block, BLOCK the bytes of each read at a
time."""
CONFIG = CONFIGS[0]


@triton.jit
def _nibbles(packed):
    """Return the values of the low and of the high four bits, from -8 to 7.

    The bits are placed in the mantissa of a float between 1 and 2, which is cheaper than a conversion.
    """
    wide = packed.to(tl.int32)
    low = (((wide & 15) << 19) | 0x3F800000).to(tl.float32, bitcast=True)
    high = (((wide & 240) << 15) | 0x3F800000).to(tl.float32, bitcast=True)
    return low * 16.0 - 24.0, high * 16.0 - 24.0


@triton.jit
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, x_stride,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """With 4 bits, a byte of a row of weights holds element j in its low half and element j + K / 2 in its high
    half."""
    column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < columns
    row = tl.program_id(1).to(tl.int64)
    bytes_of_row: tl.constexpr = K * BITS // 8
    groups: tl.constexpr = K // GROUP
    weight_at = weight_ptr + column.to(tl.int64)[:, None] * bytes_of_row
    scale_at = scale_ptr + column[:, None] * groups
    total = tl.zeros([ROWS, BLOCK // GROUP], tl.float32)
    for start in range(0, bytes_of_row, BLOCK):
        at = start + tl.arange(0, BLOCK)
        fits = at < bytes_of_row
        packed = tl.load(weight_at + at[None, :], mask=inside[:, None] & fits[None, :], other=0)
        group = start // GROUP + tl.arange(0, BLOCK // GROUP)
        there = inside[:, None] & (group * GROUP < bytes_of_row)[None, :]
        x = tl.load(x_ptr + row * x_stride + at, mask=fits, other=0.0).to(tl.float32)
        scale = tl.load(scale_at + group[None, :], mask=there, other=0.0).to(tl.float32)
        if BITS == 4:
            low, high = _nibbles(packed)
            second = tl.load(x_ptr + row * x_stride + K // 2 + at, mask=fits, other=0.0).to(tl.float32)
            other = tl.load(scale_at + groups // 2 + group[None, :], mask=there, other=0.0).to(tl.float32)
            total += _by_group(low * x[None, :], GROUP) * scale + _by_group(high * second[None, :], GROUP) * other
        else:
            total += _by_group(packed.to(tl.float32) * x[None, :], GROUP) * scale
    out = tl.sum(total, axis=1)
    if BIAS:
        out += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, out, mask=inside)


@triton.jit
def _by_group(products, GROUP: tl.constexpr):
    """Return the sum of each group of a row."""
    return tl.sum(tl.reshape(products, [products.shape[0], products.shape[1] // GROUP, GROUP]), axis=2)


@triton.jit
def _scaled(
    weight_ptr, scale_ptr, out_ptr, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write a row of scaled weights in the type of the result."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < K * BITS // 8
    packed = tl.load(weight_ptr + row * (K * BITS // 8) + at, mask=inside, other=0)
    scale_at = scale_ptr + row * (K // GROUP) + at // GROUP
    scale = tl.load(scale_at, mask=inside, other=0.0).to(tl.float32)
    if BITS == 4:
        low, high = _nibbles(packed)
        other = tl.load(scale_at + K // 2 // GROUP, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * K + at, low * scale, mask=inside)
        tl.store(out_ptr + row * K + K // 2 + at, high * other, mask=inside)
    else:
        tl.store(out_ptr + row * K + at, packed.to(tl.float32) * scale, mask=inside)


def pack(weight, bits=4, group=64):
    """Return the weights (outputs, inputs) in `bits` bits, and a scale per group of inputs. With 4 bits, a byte holds
    two.

    The number of inputs must be a multiple of twice the group.
    """
    rows, columns = weight.shape
    if columns % (2 * group) or group & (group - 1):
        raise ValueError(f"{columns} inputs are no multiple of twice a group of {group}, or it is no power of two.")
    largest = 7 if bits == 4 else 127
    parts = weight.detach().float().reshape(rows, -1, group)
    scale = (parts.abs().amax(-1, keepdim=True) / largest).clamp(min=1e-10).to(weight.dtype)
    rounded = (parts / scale.float()).round().clamp(-largest - 1, largest).to(torch.int8).reshape(rows, columns)
    if bits == 4:
        low, high = (rounded + 8).to(torch.uint8).chunk(2, dim=1)
        rounded = low | (high << 4)
    return rounded.contiguous(), scale.squeeze(-1).contiguous()


def unpack(packed, scale, bits=4):
    """Return the unpacked weights of `pack` in the type of the scales, in plain PyTorch."""
    values = packed
    if bits == 4:
        values = torch.cat([packed & 15, packed >> 4], dim=1).to(torch.int8) - 8
    parts = values.to(scale.dtype).reshape(len(values), scale.shape[1], -1)
    return (parts * scale.unsqueeze(-1)).reshape(values.shape)


def fused(x, packed, scale, bias=None, bits=4):
    """Return x @ weight.T + bias, for weights that `pack` packed."""
    rows, columns, inputs = x.reshape(-1, x.shape[-1]), len(packed), x.shape[-1]
    group = inputs // scale.shape[1]
    if len(rows) > MOST_ROWS:
        return torch.nn.functional.linear(x, _unpacked(packed, scale, inputs, group, bits), bias)
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
    if out.numel():
        block = max(group, min(CONFIG["BLOCK"], triton.next_power_of_2(packed.shape[1])))
        _product[(triton.cdiv(columns, CONFIG["ROWS"]), len(rows))](
            rows, packed, scale, bias, out, columns, rows.stride(0), inputs, group, bits, bias is not None,
            ROWS=CONFIG["ROWS"], BLOCK=block, num_warps=CONFIG["num_warps"],
        )  # fmt: skip
    return out


def _unpacked(packed, scale, inputs, group, bits):
    out = torch.empty(len(packed), inputs, dtype=scale.dtype, device=packed.device)
    _scaled[(len(packed), triton.cdiv(packed.shape[1], 1024))](packed, scale, out, inputs, group, bits, 1024)
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
