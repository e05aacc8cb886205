"""A chain of pointwise ops: one kernel reads the inputs, computes the chain in registers, and writes its result."""

from types import MethodType

import torch
import triton
import triton.language as tl

LAYERS = ("NewGELUActivation",)
"""Classes of the modules that consist only of the chain."""
CONFIGS = (
    {"BLOCK": 1024, "num_warps": 4},
    {"BLOCK": 2048, "num_warps": 8},
    {"BLOCK": 512, "num_warps": 4},
)
"""Launch configurations to try, best first. BLOCK is the number of elements per block."""
CONFIG = CONFIGS[0]


# body: written from the ops of the run
@triton.jit
def _tanh(x):
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))


@triton.jit
def _body(x0):
    v1 = x0 * x0 * x0
    v2 = v1 * 0.044715
    v3 = x0 + v2
    v4 = _tanh(v3 * 0.7978845608028654)
    return x0 * 0.5 * (v4 + 1.0)


@triton.jit
def _gradient(x0, grad):
    inner = _tanh((x0 + 0.044715 * x0 * x0 * x0) * 0.7978845608028654)
    slope = (1.0 - inner * inner) * 0.7978845608028654 * (1.0 + 0.134145 * x0 * x0)
    return grad * 0.5 * (1.0 + inner + x0 * slope)


def _unfused(x0):
    return 0.5 * x0 * (1.0 + torch.tanh(0.7978845608028654 * (x0 + 0.044715 * torch.pow(x0, 3.0))))


# end of the body


@triton.jit
def _forward(x_ptr, out_ptr, elements, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, _body(x), mask=inside)


@triton.jit
def _backward(x_ptr, grad_ptr, x_grad_ptr, elements, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(x_grad_ptr + at, _gradient(x, grad), mask=inside)


def _grid(x):
    return (triton.cdiv(x.numel(), CONFIG["BLOCK"]),)


def _run(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _forward[_grid(x)](x, out, x.numel(), **CONFIG)
    return out


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _run(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].contiguous()
        x_grad = torch.empty_like(x)
        _backward[_grid(x)](x, grad.contiguous(), x_grad, x.numel(), **CONFIG)
        return x_grad


def fused(x):
    """Return the result of the chain."""
    return _Chain.apply(x) if torch.is_grad_enabled() and x.requires_grad else _run(x)


def reference(x):
    return _unfused(x)


def example(dtype, device, rows=4, columns=3072):
    return (torch.randn(rows, columns, dtype=dtype, device=device),)


def apply(model):
    """Compute each module that consists of the chain in one kernel. Raises ValueError if none does."""
    modules = [each for each in model.modules() if type(each).__name__ in LAYERS]
    if not modules:
        raise ValueError(f"The model has no {' or '.join(LAYERS)}.")
    x = torch.linspace(-4, 4, 64)
    for module in modules:
        if not torch.allclose(type(module).forward(module, x), reference(x), rtol=1e-4, atol=1e-4):
            raise ValueError(f"A {type(module).__name__} of the model computes something else than this kernel.")
        module.forward = MethodType(_chain, module)
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _chain:
            del module.forward
    return model


def _chain(self, x):
    return fused(x)
