"""RMS norm + quantization: one kernel normalizes a row, computes its largest magnitude, and writes it in int8.

It reads a row once and writes a quarter (fp32) or half (16 bits) of its bytes. Unfused, the norm is written, read for
its largest magnitude, and read again to be scaled. An int8 GEMM takes the rows and their scales directly.
"""

import torch
import triton
import triton.language as tl

CONFIGS = ({"num_warps": 4}, {"num_warps": 8}, {"num_warps": 16})
"""Launch configurations to try, best first. A block holds one row in registers."""
CONFIG = CONFIGS[0]
LARGEST = 127.0


@triton.jit
def _quantized_norm(
    x_ptr, weight_ptr, out_ptr, scale_ptr, x_stride, eps,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    normed = x * tl.rsqrt(tl.sum(x * x, axis=0) / COLUMNS + eps) * weight
    scale = tl.maximum(tl.max(tl.abs(normed), axis=0), 1e-12) / LARGEST
    tl.store(scale_ptr + row, scale)
    nearest = tl.floor(normed / scale + 0.5)
    tl.store(out_ptr + row * COLUMNS + column, nearest.to(tl.int8), mask=inside)


def fused(x, weight, eps=1e-6):
    """Return the norm of x in int8, and the scale of each row."""
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    columns = x.shape[-1]
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    if len(rows):
        _quantized_norm[(len(rows),)](
            rows,
            weight.contiguous(),
            out,
            scale,
            rows.stride(0),
            eps,
            columns,
            triton.next_power_of_2(columns),
            LARGEST,
            **CONFIG,
        )
    return out, scale


def reference(x, weight, eps=1e-6):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight
    scale = normed.abs().amax(-1).clamp(min=1e-12) / LARGEST
    return (normed / scale.unsqueeze(-1) + 0.5).floor().to(torch.int8), scale


def example(dtype, device, rows=4, columns=2048):
    x = torch.randn(rows, columns, dtype=dtype, device=device)
    return x, torch.rand(columns, dtype=dtype, device=device) + 0.5
