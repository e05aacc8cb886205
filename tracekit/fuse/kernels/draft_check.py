"""Verification of drafted tokens: two small kernels compute the model's tokens and the number of accepted drafted
tokens.

Unfused, an argmax over each row of logits, a comparison, a cumulative product and a sum are launched, and the host
reads the tokens to compare them. Here the logits are read once, by enough blocks to keep the GPU busy.
"""

import torch
import triton
import triton.language as tl

CONFIGS = (
    {"BLOCK": 4096, "num_warps": 8},
    {"BLOCK": 2048, "num_warps": 4},
    {"BLOCK": 8192, "num_warps": 16},
)
"""Launch configurations to try, best first. BLOCK is the number of logits per block."""
CONFIG = CONFIGS[0]


@triton.jit
def _largest(logits_ptr, value_ptr, index_ptr, vocabulary, row_stride, parts, BLOCK: tl.constexpr):
    """Compute the largest logit of a part of a row, and the first index that has it."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * row_stride + column, mask=column < vocabulary, other=-float("inf"))
    logits = logits.to(tl.float32)
    largest = tl.max(logits, axis=0)
    first = tl.min(tl.where(logits == largest, column, 2147483647), axis=0)
    tl.store(value_ptr + row * parts + part, largest)
    tl.store(index_ptr + row * parts + part, first)


@triton.jit
def _confirmed(
    value_ptr, index_ptr, draft_ptr, token_ptr, count_ptr, rows, parts, PARTS: tl.constexpr, ROWS: tl.constexpr
):
    """Combine the parts of each row, and count the drafted tokens before the first difference."""
    row, part = tl.arange(0, ROWS), tl.arange(0, PARTS)
    inside = (row < rows)[:, None] & (part < parts)[None, :]
    at = row[:, None] * parts + part[None, :]
    values = tl.load(value_ptr + at, mask=inside, other=-float("inf"))
    indices = tl.load(index_ptr + at, mask=inside, other=2147483647)
    largest = tl.max(values, axis=1)
    token = tl.min(tl.where(values == largest[:, None], indices, 2147483647), axis=1)
    tl.store(token_ptr + row, token.to(tl.int64), mask=row < rows)
    drafted = tl.load(draft_ptr + row, mask=row < rows - 1, other=-1)
    differs = tl.where((row >= rows - 1) | (drafted != token), row, ROWS)
    tl.store(count_ptr, tl.min(differs, axis=0).to(tl.int64))


def fused(logits, drafted):
    """Return the model's tokens and the number of accepted drafted tokens, both on the device.

    Shapes: logits (drafted tokens + 1, vocabulary), drafted (drafted tokens).
    """
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, CONFIG["BLOCK"])
    values = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    indices = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    count = torch.empty((), dtype=torch.int64, device=logits.device)
    _largest[(rows, parts)](logits, values, indices, vocabulary, logits.stride(0), parts, **CONFIG)
    _confirmed[(1,)](
        values, indices, drafted.contiguous(), tokens, count, rows, parts,
        triton.next_power_of_2(parts), triton.next_power_of_2(rows), num_warps=4,
    )  # fmt: skip
    return tokens, count


def reference(logits, drafted):
    tokens = logits.argmax(-1)
    return tokens, (tokens[:-1] == drafted).long().cumprod(0).sum()


def example(dtype, device, rows=4, vocabulary=5000):
    logits = torch.randn(rows + 1, vocabulary, device=device).to(dtype)
    drafted = logits[:-1].argmax(-1)
    drafted[rows // 2 :] += 1
    return logits, drafted
