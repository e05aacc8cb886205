"""Rotary embedding: one kernel rotates the queries and the keys of a token.

It reads the queries, the keys, cos and sin once and writes both results once. Unfused, each is halved, negated,
concatenated, multiplied twice and added, in ten launches.
"""

from functools import partial
from types import FunctionType, MethodType

import torch
import triton
import triton.language as tl

LAYERS = ("LlamaAttention",)
"""Classes of the attention layers, which call the function that `apply` replaces."""
FUNCTION = "apply_rotary_pos_emb"
INTERLEAVED = False
"""Whether neighbours are rotated (as in Cohere's models), not the halves of a head."""
PAIRED = False
"""Whether the first half of cos and sin holds an angle for each pair (as in GLM), not one for each element."""
CONFIGS = ({"num_warps": 4}, {"num_warps": 2}, {"num_warps": 8})
"""Launch configurations to try, best first. A block rotates all heads of one token."""
CONFIG = CONFIGS[0]


@triton.jit
def _turn(
    ptr, out_ptr, head_stride, HEADS: tl.constexpr, HEADS_BLOCK: tl.constexpr, HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, cos, other_cos, sin, other_sin,
):  # fmt: skip
    head, column = tl.arange(0, HEADS_BLOCK)[:, None], tl.arange(0, HALF_BLOCK)[None, :]
    inside = (head < HEADS) & (column < HALF)
    first = tl.load(ptr + head * head_stride + STEP * column, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(ptr + head * head_stride + STEP * column + APART, mask=inside, other=0.0).to(tl.float32)
    at = out_ptr + head * 2 * HALF + STEP * column
    tl.store(at, first * cos - second * sin, mask=inside)
    tl.store(at + APART, second * other_cos + first * other_sin, mask=inside)


@triton.jit
def _rotate(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr, tokens,
    q_batch_stride, q_head_stride, q_token_stride, k_batch_stride, k_head_stride, k_token_stride,
    cos_batch_stride, cos_token_stride,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr,
    Q_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, HALF_BLOCK: tl.constexpr,
    STEP: tl.constexpr, APART: tl.constexpr, ANGLE_STEP: tl.constexpr, ANGLE_APART: tl.constexpr,
    BACKWARD: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    batch, token = program // tokens, program % tokens
    column = tl.arange(0, HALF_BLOCK)[None, :]
    inside = column < HALF
    at = batch * cos_batch_stride + token * cos_token_stride + ANGLE_STEP * column
    cos = tl.load(cos_ptr + at, mask=inside, other=0.0).to(tl.float32)
    other_cos = tl.load(cos_ptr + at + ANGLE_APART, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + at, mask=inside, other=0.0).to(tl.float32)
    other_sin = tl.load(sin_ptr + at + ANGLE_APART, mask=inside, other=0.0).to(tl.float32)
    if BACKWARD:  # the transpose of the rotation
        turned = -other_sin
        other_sin = -sin
        sin = turned
    q_ptr += batch * q_batch_stride + token * q_token_stride
    k_ptr += batch * k_batch_stride + token * k_token_stride
    q_out_ptr += program * Q_HEADS * 2 * HALF
    k_out_ptr += program * K_HEADS * 2 * HALF
    _turn(
        q_ptr, q_out_ptr, q_head_stride, Q_HEADS, Q_BLOCK, HALF, HALF_BLOCK, STEP, APART, cos, other_cos, sin, other_sin
    )
    _turn(
        k_ptr, k_out_ptr, k_head_stride, K_HEADS, K_BLOCK, HALF, HALF_BLOCK, STEP, APART, cos, other_cos, sin, other_sin
    )


def _run(q, k, cos, sin, backward=False):
    """Rotate queries and keys. Shapes: (batch, heads, tokens, head size); cos and sin: (batch or 1, tokens, head
    size)."""
    q, k = (each if each.stride(-1) == 1 else each.contiguous() for each in (q, k))
    cos, sin = cos.contiguous(), sin.contiguous()
    batch, q_heads, tokens, size = q.shape
    k_heads = k.shape[1]
    q_out = torch.empty(batch, tokens, q_heads, size, dtype=q.dtype, device=q.device)
    k_out = torch.empty(batch, tokens, k_heads, size, dtype=k.dtype, device=k.device)
    apart = (2, 1) if INTERLEAVED else (1, size // 2)
    if q_out.numel():
        _rotate[(batch * tokens,)](
            q, k, cos, sin, q_out, k_out, tokens, *q.stride()[:3], *k.stride()[:3],
            cos.stride(0) if len(cos) > 1 else 0, cos.stride(1), q_heads, k_heads, size // 2,
            triton.next_power_of_2(q_heads), triton.next_power_of_2(k_heads), triton.next_power_of_2(size // 2),
            *apart, *((1, 0) if PAIRED else apart), backward, **CONFIG,
        )  # fmt: skip
    return q_out.transpose(1, 2), k_out.transpose(1, 2)


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _run(q, k, cos, sin)

    @staticmethod
    def backward(ctx, q_grad, k_grad):
        return *_run(q_grad, k_grad, *ctx.saved_tensors, backward=True), None, None


def fused(q, k, cos, sin):
    """Return the queries and the keys, rotated by the angle of each token."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
        return _Rotary.apply(q, k, cos, sin)
    return _run(q, k, cos, sin)


def reference(q, k, cos, sin):
    if PAIRED:
        cos, sin = (each[..., : each.shape[-1] // 2].repeat_interleave(2, -1) for each in (cos, sin))

    def turned(x):
        first, second = (x[..., ::2], x[..., 1::2]) if INTERLEAVED else x.chunk(2, -1)
        other = torch.stack((-second, first), -1).flatten(-2) if INTERLEAVED else torch.cat((-second, first), -1)
        return x * cos.unsqueeze(1) + other * sin.unsqueeze(1)

    return turned(q), turned(k)


def example(dtype, device, rows=4, heads=(32, 8), size=64, batch=1):
    q, k = (torch.randn(batch, rows, each, size, dtype=dtype, device=device).transpose(1, 2) for each in heads)
    angle = torch.randn(batch, rows, size, device=device)
    return q, k, angle.cos().to(dtype), angle.sin().to(dtype)


def apply(model):
    """Make each attention layer call the kernel. Other models of the same Python module keep the original function.

    Raises ValueError if no layer calls such a function.
    """
    changed = None
    for module in model.modules():
        if type(module).__name__ in LAYERS:
            plain = type(module).forward
            plain = getattr(plain, "__wrapped__", plain)
            if FUNCTION not in plain.__code__.co_names or FUNCTION not in plain.__globals__:
                continue
            seen = {**plain.__globals__, FUNCTION: partial(_called, plain.__globals__[FUNCTION])}
            changed = FunctionType(plain.__code__, seen, plain.__name__, plain.__defaults__, plain.__closure__)
            changed.__kwdefaults__ = plain.__kwdefaults__
            changed._turns_in_one_kernel = True
            module.forward = MethodType(changed, module)
    if changed is None:
        raise ValueError(f"No {' or '.join(LAYERS)} calls {FUNCTION}(q, k, cos, sin): call fused(...) in its place.")
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "_turns_in_one_kernel", False):
            del module.forward
    return model


def _called(plain, q, k, cos, sin, *others, **options):
    """Rotate (batch, heads, tokens, size) by the kernel, or only the first part of each head. Leave other layouts
    unchanged."""
    size = cos.shape[-1]
    usual = q.ndim == 4 and cos.ndim == 3 and cos.shape[-2] == q.shape[2] and size <= q.shape[3]
    if not usual or options.get("unsqueeze_dim", 1) != 1 or any(each not in (None, 1) for each in others):
        return plain(q, k, cos, sin, *others, **options)
    turned = fused(q[..., :size], k[..., :size], cos, sin)
    if size == q.shape[3]:
        return turned
    return tuple(torch.cat((part, x[..., size:]), -1) for part, x in zip(turned, (q, k), strict=True))
