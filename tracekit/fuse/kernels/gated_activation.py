"""Gated activation: one kernel computes activation(gate) * up.

It reads the gate and the up projection once and writes the product once. Unfused, the activation is written and read
again. Rows may have any stride, so both inputs may be halves of one packed projection.
"""

from types import MethodType

import torch
import triton
import triton.language as tl

LAYERS = ("LlamaMLP",)
"""Classes of the MLPs."""
NAMES = ("gate_proj", "up_proj", "down_proj")
CONFIGS = (
    {"BLOCK": 1024, "num_warps": 4},
    {"BLOCK": 2048, "num_warps": 8},
    {"BLOCK": 512, "num_warps": 4},
)
"""Launch configurations to try, best first. BLOCK is the number of elements of a row per block."""
CONFIG = CONFIGS[0]


# body: written from the ops of the run
@triton.jit
def _body(gate, up):
    return gate * tl.sigmoid(gate) * up


@triton.jit
def _gradients(gate, up, grad):
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    return grad * up * (sigmoid + silu * (1.0 - sigmoid)), grad * silu


def _unfused(gate, up):
    return torch.nn.functional.silu(gate) * up


# end of the body


@triton.jit
def _forward(gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < COLUMNS
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * COLUMNS + column, _body(gate, up), mask=inside)


@triton.jit
def _backward(
    grad_ptr, gate_ptr, up_ptr, gate_grad_ptr, up_grad_ptr, gate_stride, up_stride,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < COLUMNS
    at = row * COLUMNS + column
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gate_grad, up_grad = _gradients(gate, up, grad)
    tl.store(gate_grad_ptr + at, gate_grad, mask=inside)
    tl.store(up_grad_ptr + at, up_grad, mask=inside)


def _rows(x):
    """Return the tensor as a matrix whose rows are contiguous."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _grid(rows, columns):
    return len(rows), triton.cdiv(columns, CONFIG["BLOCK"])


def _run(gate, up):
    columns, gates, ups = gate.shape[-1], _rows(gate), _rows(up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if out.numel():
        _forward[_grid(gates, columns)](gates, ups, out, gates.stride(0), ups.stride(0), columns, **CONFIG)
    return out


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _run(gate, up)

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        columns, gates, ups = gate.shape[-1], _rows(gate), _rows(up)
        gate_grad, up_grad = (torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(2))
        _backward[_grid(gates, columns)](
            grad.contiguous(), gates, ups, gate_grad, up_grad, gates.stride(0), ups.stride(0), columns, **CONFIG
        )
        return gate_grad, up_grad


def fused(gate, up):
    """Return activation(gate) * up."""
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _Gated.apply(gate, up)
    return _run(gate, up)


def reference(gate, up):
    return _unfused(gate, up)


def example(dtype, device, rows=4, columns=8192):
    return tuple(torch.randn(rows, columns, dtype=dtype, device=device) for _ in range(2))


def apply(model):
    """Compute the activation and the gate of each MLP in one kernel.

    Raises ValueError if there is no such MLP, or if one has another activation.
    """
    modules = [each for each in model.modules() if type(each).__name__ in LAYERS]
    if not modules:
        raise ValueError(f"The model has no {' or '.join(LAYERS)}.")
    for module in modules:
        _check(module)
        module.forward = MethodType(_mlp, module)
    return model


def _check(module):
    """Raise ValueError if an MLP computes something else for gates of -4 to 4."""
    gate, up, down = (getattr(module, name) for name in NAMES)
    like = next(each for each in (*module.parameters(), *module.buffers()) if each.is_floating_point())
    width = getattr(gate, "in_features", 0) or gate.weight.shape[0]
    x = torch.linspace(-1, 1, 8 * width, device=like.device).reshape(8, width).to(like.dtype)
    with torch.no_grad():
        x = 2 * x / gate(x).std().clamp(min=1e-4)
        theirs, ours = type(module).forward(module, x).float(), down(reference(gate(x), up(x))).float()
    if (theirs - ours).abs().max() > 0.02 * ours.abs().max():
        raise ValueError(f"A {type(module).__name__} of the model computes another activation than this kernel.")


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _mlp:
            del module.forward
    return model


def _mlp(self, x):
    gate, up, down = (getattr(self, name) for name in NAMES)
    return down(fused(gate(x), up(x)))
