"""Residual + norm: one kernel adds the residual, writes the sum, and normalizes it (RMS or layer norm).

It reads x and the residual once and writes the sum and its norm once. Unfused, the sum is written and read again, and a
norm made of separate ops moves each row six more times.
"""

from types import MethodType

import torch
import triton
import triton.language as tl

CENTERED = False
"""Whether the norm subtracts the mean and adds a bias (layer norm)."""
LAYERS = ("LlamaDecoderLayer",)
"""Classes of the layers: a norm, attention, a residual, a norm, an MLP, a residual."""
NAMES = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
"""Attributes of such a layer: its first norm, attention, second norm and MLP."""
LIST = "layers"
"""Attribute of the layers, in the module that holds them."""
LAST_NORM = "norm"
"""Attribute of the norm after the last layer, in the module that holds the layers."""
EPSILON = 1e-6
"""What the norm adds to the variance."""
CONFIGS = ({"num_warps": 8}, {"num_warps": 4}, {"num_warps": 16})
"""Launch configurations to try, best first. A block holds one row in registers."""
CONFIG = CONFIGS[0]


@triton.jit
def _forward(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, sum_ptr, out_ptr, mean_ptr, rstd_ptr, x_stride, residual_stride, eps,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, CENTERED: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
    rounded = x.to(sum_ptr.dtype.element_ty)  # rounded like the result of the separate addition
    tl.store(sum_ptr + row * COLUMNS + column, rounded, mask=inside)
    x = rounded.to(tl.float32)
    if CENTERED:
        mean = tl.sum(x, axis=0) / COLUMNS
        x = tl.where(inside, x - mean, 0.0)
        if SAVE:
            tl.store(mean_ptr + row, mean)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / COLUMNS + eps)
    if SAVE:
        tl.store(rstd_ptr + row, rstd)
    if CENTERED:
        bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
        out = x * rstd * weight + bias
    else:
        out = (x * rstd).to(out_ptr.dtype.element_ty).to(tl.float32) * weight
    tl.store(out_ptr + row * COLUMNS + column, out, mask=inside)


@triton.jit
def _backward(
    out_grad_ptr, sum_grad_ptr, sum_ptr, weight_ptr, mean_ptr, rstd_ptr, x_grad_ptr, weight_grad_ptr, bias_grad_ptr,
    rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, CENTERED: tl.constexpr,
):  # fmt: skip
    """Compute gradients: each program processes every n-th row, and sums its part of the weights' gradients in
    registers."""
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    weight_grad = tl.zeros([BLOCK], tl.float32)
    bias_grad = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * COLUMNS + column
        rstd = tl.load(rstd_ptr + row)
        x = tl.load(sum_ptr + at, mask=inside, other=0.0).to(tl.float32)
        out_grad = tl.load(out_grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
        sum_grad = tl.load(sum_grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
        scaled = out_grad * weight
        if CENTERED:
            x = tl.where(inside, x - tl.load(mean_ptr + row), 0.0)
            bias_grad += out_grad
        normed = x * rstd
        weight_grad += out_grad * normed
        grad = scaled - normed * (tl.sum(scaled * normed, axis=0) / COLUMNS)
        if CENTERED:
            grad -= tl.sum(scaled, axis=0) / COLUMNS
        tl.store(x_grad_ptr + at, grad * rstd + sum_grad, mask=inside)
    tl.store(weight_grad_ptr + tl.program_id(0) * COLUMNS + column, weight_grad, mask=inside)
    if CENTERED:
        tl.store(bias_grad_ptr + tl.program_id(0) * COLUMNS + column, bias_grad, mask=inside)


def _run(x, residual, weight, bias, eps, save=False):
    columns = x.shape[-1]
    x_rows, residual_rows, weight = _rows(x), _rows(residual), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out = torch.empty_like(total)
    statistics = torch.empty(2, len(x_rows), dtype=torch.float32, device=x.device) if save else (None, None)
    if len(x_rows):
        _forward[(len(x_rows),)](
            x_rows, residual_rows, weight, bias, total, out, *statistics, x_rows.stride(0), residual_rows.stride(0),
            eps, columns, triton.next_power_of_2(columns), CENTERED, save, **CONFIG,
        )  # fmt: skip
    return out, total, statistics


def _rows(x):
    """Return the tensor as a matrix whose rows are contiguous."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        out, total, statistics = _run(x, residual, weight, bias, eps, save=True)
        ctx.save_for_backward(total, weight, statistics)
        return out, total

    @staticmethod
    def backward(ctx, out_grad, sum_grad):
        total, weight, (mean, rstd) = ctx.saved_tensors
        columns, rows = total.shape[-1], len(rstd)
        programs = min(rows, 4 * _multiprocessors(total))
        grad = torch.empty_like(total)
        partial = torch.empty(2, programs, columns, dtype=torch.float32, device=total.device)
        _backward[(programs,)](
            out_grad.contiguous(), sum_grad.contiguous(), total, weight.contiguous(), mean, rstd, grad, *partial, rows,
            columns, triton.next_power_of_2(columns), CENTERED, **CONFIG,
        )  # fmt: skip
        weight_grad = partial[0].sum(0).to(weight.dtype)
        return grad, grad, weight_grad, partial[1].sum(0).to(weight.dtype) if CENTERED else None, None


def _multiprocessors(x):
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1


def fused(x, residual, weight, bias=None, eps=EPSILON):
    """Return the norm of x + residual, and the sum. Only a layer norm has a bias."""
    if torch.is_grad_enabled() and (x.requires_grad or residual.requires_grad or weight.requires_grad):
        return _AddNorm.apply(x, residual, weight, bias, eps)
    return _run(x, residual, weight, bias, eps)[:2]


def reference(x, residual, weight, bias=None, eps=EPSILON):
    total = x + residual
    if CENTERED:
        return torch.nn.functional.layer_norm(total, total.shape[-1:], weight, bias, eps), total
    wide = total.to(torch.promote_types(total.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype), total


def example(dtype, device, rows=4, columns=2048):
    x, residual = (torch.randn(rows, columns, dtype=dtype, device=device) for _ in range(2))
    weight, bias = torch.rand(2, columns, dtype=dtype, device=device) + 0.5
    return (x, residual, weight, bias) if CENTERED else (x, residual, weight)


def apply(model):
    """Fuse each residual of a layer with the next norm: the attention's with the second norm, the MLP's with the next
    layer's.

    Raises ValueError if no layers fit, or if a norm has another epsilon. Layers must return only their hidden states.
    """
    changed = 0
    for parent in model.modules():
        layers = getattr(parent, LIST, None)
        if not isinstance(layers, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        if not layers or not all(type(each).__name__ in LAYERS for each in layers):
            continue
        changed += len(layers)
        following = [getattr(layer, NAMES[0]) for layer in layers[1:]] + [getattr(parent, LAST_NORM)]
        for norm in (*following, *(getattr(layer, NAMES[2]) for layer in layers)):
            _check(norm)
        for layer, norm in zip(layers, following, strict=True):
            object.__setattr__(layer, "_following", norm)  # not a submodule of this layer
            layer.forward = MethodType(_layer, layer)
            norm.forward = MethodType(_given, norm)
    if not changed:
        raise ValueError(f"No module of the model holds {' or '.join(LAYERS)} in a list {LIST!r}.")
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) in (_layer, _given):
            for name in ("forward", "_following", "_normed"):
                module.__dict__.pop(name, None)
    return model


def _layer(self, hidden_states, *args, **kwargs):
    first, attention, second, mlp = (getattr(self, name) for name in NAMES)
    attended = attention(first(hidden_states), *args, **kwargs)
    attended = attended[0] if isinstance(attended, tuple) else attended
    normed, total = _norm(second, attended, hidden_states)
    out, total = _norm(self._following, mlp(normed), total)
    self._following._normed = total, out
    return total


def _norm(norm, x, residual):
    return fused(x, residual, norm.weight, getattr(norm, "bias", None))


def _check(norm):
    """Raise ValueError if a norm computes something else for inputs as small as the epsilon."""
    x = EPSILON**0.5 * torch.linspace(-2, 2, norm.weight.numel(), device=norm.weight.device).unsqueeze(0)
    x = x.to(norm.weight.dtype)
    with torch.no_grad():
        theirs = type(norm).forward(norm, x).float()
        ours = reference(x, torch.zeros_like(x), norm.weight, getattr(norm, "bias", None))[0].float()
    if not torch.allclose(theirs, ours, rtol=0.02, atol=0.02):
        raise ValueError(f"{type(norm).__name__} computes another norm than this kernel, whose epsilon is {EPSILON}.")


def _given(self, hidden_states):
    """Return the norm that the previous layer computed; compute it if the input is another tensor."""
    total, normed = self.__dict__.pop("_normed", (None, None))
    return normed if total is hidden_states else type(self).forward(self, hidden_states)
