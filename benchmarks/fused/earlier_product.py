"""The product with packed weights as it was until it was bound by its instructions: seven for each weight."""

import torch
import triton
import triton.language as tl

CONFIGS = (
    {"ROWS": 16, "BLOCK": 256, "num_warps": 4},
    {"ROWS": 4, "BLOCK": 1024, "num_warps": 4},
    {"ROWS": 8, "BLOCK": 512, "num_warps": 4},
)
"""Its fastest launches on an H100."""
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
    x_ptr, weight_ptr, scale_ptr, out_ptr, columns, x_stride,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
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
    tl.store(out_ptr + row * columns + column, out, mask=inside)


@triton.jit
def _by_group(products, GROUP: tl.constexpr):
    """Return the sum of each group of a row."""
    return tl.sum(tl.reshape(products, [products.shape[0], products.shape[1] // GROUP, GROUP]), axis=2)


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


def fused(x, packed, scale, bits=4):
    """Return x @ weight.T for one row."""
    columns, inputs = len(packed), x.shape[-1]
    group = inputs // scale.shape[1]
    out = torch.empty(1, columns, dtype=x.dtype, device=x.device)
    block = max(group, min(CONFIG["BLOCK"], triton.next_power_of_2(packed.shape[1])))
    _product[(triton.cdiv(columns, CONFIG["ROWS"]), 1)](
        x, packed, scale, out, columns, x.stride(0), inputs, group, bits,
        ROWS=CONFIG["ROWS"], BLOCK=block, num_warps=CONFIG["num_warps"],
    )  # fmt: skip
    return out
