"""Softmax with a mask: one kernel scales the scores, adds the mask, and normalizes each row.

If the model does not need attention weights, torch.nn.functional.scaled_dot_product_attention is better: it never
writes the scores.
"""

import torch
import triton
import triton.language as tl

CONFIGS = ({"num_warps": 4}, {"num_warps": 8}, {"num_warps": 2})
"""Launch configurations to try, best first. A block holds one row in registers."""
CONFIG = CONFIGS[0]


@triton.jit
def _forward(
    scores_ptr, mask_ptr, out_ptr, scale, heads, queries, mask_batch_stride, mask_query_stride,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    scores = tl.load(scores_ptr + row * COLUMNS + column, mask=inside, other=-float("inf")).to(tl.float32) * scale
    if MASK:
        batch, query = row // (heads * queries), row % queries
        at = batch * mask_batch_stride + query * mask_query_stride + column
        scores += tl.load(mask_ptr + at, mask=inside, other=0.0).to(tl.float32)
    raised = tl.exp(scores - tl.max(scores, axis=0))
    tl.store(out_ptr + row * COLUMNS + column, raised / tl.sum(raised, axis=0), mask=inside)


@triton.jit
def _backward(grad_ptr, out_ptr, scores_grad_ptr, scale, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    at = row * COLUMNS + column
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
    out = tl.load(out_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(scores_grad_ptr + at, out * (grad - tl.sum(grad * out, axis=0)) * scale, mask=inside)


def _run(scores, mask, scale):
    scores = scores.contiguous()
    _, heads, queries, columns = scores.shape
    out = torch.empty_like(scores)
    strides = (0, 0)
    if mask is not None:
        mask = mask.expand(scores.shape[0], 1, queries, columns)
        mask = mask if mask.stride(-1) == 1 else mask.contiguous()
        strides = mask.stride(0), mask.stride(2)
    if scores.numel():
        _forward[(scores.numel() // columns,)](
            scores, mask, out, scale, heads, queries, *strides,
            columns, triton.next_power_of_2(columns), mask is not None, **CONFIG,
        )  # fmt: skip
    return out


class _MaskedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, mask, scale):
        out = _run(scores, mask, scale)
        ctx.scale = scale
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        columns = out.shape[-1]
        scores_grad = torch.empty_like(out)
        _backward[(out.numel() // columns,)](
            grad.contiguous(), out, scores_grad, ctx.scale, columns, triton.next_power_of_2(columns), **CONFIG
        )
        return scores_grad, None, None


def fused(scores, mask=None, scale=1.0):
    """Return the softmax of scale * scores + mask over the last dimension.

    Shapes: scores (batch, heads, queries, keys), mask (batch or 1, 1, queries or 1, keys).
    """
    if torch.is_grad_enabled() and scores.requires_grad:
        return _MaskedSoftmax.apply(scores, mask, scale)
    return _run(scores, mask, scale)


def reference(scores, mask=None, scale=1.0):
    scaled = scores * scale if mask is None else scores * scale + mask
    wide = torch.promote_types(scores.dtype, torch.float32)
    return torch.nn.functional.softmax(scaled, -1, dtype=wide).to(scores.dtype)


def example(dtype, device, rows=4, heads=2, keys=512, batch=1):
    scores = torch.randn(batch, heads, rows, keys, dtype=dtype, device=device)
    masked = torch.ones(rows, keys, dtype=torch.bool, device=device).triu(keys - rows + 1)
    mask = torch.randn(batch, 1, rows, keys, dtype=dtype, device=device).masked_fill(masked, torch.finfo(dtype).min)
    return scores, mask, 0.125
