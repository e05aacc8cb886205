"""Rotary embedding of one tensor, whose neighbours are rotated by the angle of their pair, as in GPT-J and CodeGen.

It reads the tensor, sin and cos once and writes the result once. Unfused, sin and cos are repeated, and the tensor is
halved, negated, stacked, multiplied twice and added, in seven launches.
"""

from functools import partial
from types import FunctionType, MethodType

import torch
import triton
import triton.language as tl

LAYERS = ("GPTJAttention",)
"""Classes of the attention layers, which call the function that `apply` replaces."""
FUNCTION = "apply_rotary_pos_emb"
CONFIGS = ({"num_warps": 4}, {"num_warps": 2}, {"num_warps": 8})
"""Launch configurations to try, best first. A block rotates all heads of one token."""
CONFIG = CONFIGS[0]


@triton.jit
def _rotate(
    x_ptr, sin_ptr, cos_ptr, out_ptr, tokens, batch_stride, token_stride, head_stride, angle_stride,
    HEADS: tl.constexpr, HALF: tl.constexpr, HEADS_BLOCK: tl.constexpr, HALF_BLOCK: tl.constexpr,
    BACKWARD: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    batch, token = program // tokens, program % tokens
    head, pair = tl.arange(0, HEADS_BLOCK)[:, None], tl.arange(0, HALF_BLOCK)[None, :]
    inside = (head < HEADS) & (pair < HALF)
    angle = batch * angle_stride + token * HALF + pair
    sin = tl.load(sin_ptr + angle, mask=pair < HALF, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + angle, mask=pair < HALF, other=0.0).to(tl.float32)
    if BACKWARD:  # the transpose of the rotation
        sin = -sin
    at = x_ptr + batch * batch_stride + token * token_stride + head * head_stride + 2 * pair
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + 1, mask=inside, other=0.0).to(tl.float32)
    to = out_ptr + (program * HEADS + head) * 2 * HALF + 2 * pair
    tl.store(to, first * cos - second * sin, mask=inside)
    tl.store(to + 1, second * cos + first * sin, mask=inside)


def _run(x, sin, cos, backward=False):
    """Shapes: x (batch, tokens, heads, size); sin and cos (batch or 1, tokens, size / 2)."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    sin, cos = sin.contiguous(), cos.contiguous()
    batch, tokens, heads, size = x.shape
    out = torch.empty(batch, tokens, heads, size, dtype=x.dtype, device=x.device)
    if out.numel():
        _rotate[(batch * tokens,)](
            x, sin, cos, out, tokens, *x.stride()[:3], sin.stride(0) if len(sin) > 1 else 0, heads, size // 2,
            triton.next_power_of_2(heads), triton.next_power_of_2(size // 2), backward, **CONFIG,
        )  # fmt: skip
    return out


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sin, cos):
        ctx.save_for_backward(sin, cos)
        return _run(x, sin, cos)

    @staticmethod
    def backward(ctx, grad):
        return _run(grad, *ctx.saved_tensors, backward=True), None, None


def fused(x, sin, cos):
    """Return the tensor with each pair of neighbours rotated by its angle."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Rotary.apply(x, sin, cos)
    return _run(x, sin, cos)


def reference(x, sin, cos):
    sin, cos = (each.repeat_interleave(2, -1).unsqueeze(2) for each in (sin, cos))
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos + turned * sin


def example(dtype, device, rows=4, heads=16, size=64, batch=1):
    angle = torch.randn(batch, rows, size // 2, device=device)
    x = torch.randn(batch, rows, heads, size, dtype=dtype, device=device)
    return x, angle.sin().to(dtype), angle.cos().to(dtype)


def moved_bytes(x, sin, cos):
    """Return the least number of bytes to move: the tensor is read and written, sin and cos are read once."""
    return 2 * x.nbytes + sin.nbytes + cos.nbytes


def apply(model):
    """Let each attention layer call the kernel. Other models of the same Python module keep the original function.

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
        raise ValueError(f"No {' or '.join(LAYERS)} calls {FUNCTION}(x, sin, cos): call fused(...) in its place.")
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "_turns_in_one_kernel", False):
            del module.forward
    return model


def _called(plain, x, sin, cos, *others, **options):
    """Rotate (batch, tokens, heads, size) by the kernel. Leave other layouts unchanged."""
    usual = x.ndim == 4 and sin.ndim == 3 and sin.shape[1:] == (x.shape[1], x.shape[3] // 2) and sin.shape == cos.shape
    if others or options or not usual:
        return plain(x, sin, cos, *others, **options)
    return fused(x, sin, cos)
