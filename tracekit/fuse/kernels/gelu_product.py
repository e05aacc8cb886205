"""GEMM + bias + GELU: the GEMM's epilogue computes the activation.

This is not a kernel of our own: torch._addmm_activation calls the library's GEMM with this epilogue (cuBLASLt), which
writes only the activation. It uses the tanh approximation of GELU and has no backward pass, so it is for inference. The
library approximates tanh itself to about 1e-5: within the rounding of 16 bits, but not of fp32.
"""

from types import MethodType

import torch

LAYERS = ("GPT2MLP",)
"""Classes of the MLPs."""
NAMES = ("c_fc", "act", "c_proj", "dropout")
DTYPES = (torch.float16, torch.bfloat16)


def fused(x, weight, bias):
    """Return gelu(x @ weight + bias) by the tanh approximation. The weight is (inputs, outputs), as in GPT-2."""
    rows = x.reshape(-1, x.shape[-1])
    if not x.is_cuda:  # the CPU's epilogue is the exact GELU
        return reference(x, weight, bias)
    out = torch._addmm_activation(bias, rows, weight, use_gelu=True)
    return out.view(*x.shape[:-1], weight.shape[1])


def reference(x, weight, bias):
    """Return the result of GPT-2's separate ops."""
    x = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight).view(*x.shape[:-1], weight.shape[1])
    return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


def example(dtype, device, rows=4, columns=768, outputs=3072):
    x = torch.randn(rows, columns, dtype=dtype, device=device)
    weight = torch.randn(columns, outputs, dtype=dtype, device=device) * columns**-0.5
    return x, weight, torch.randn(outputs, dtype=dtype, device=device)


def apply(model):
    """Compute the first GEMM and the activation of each MLP in one kernel.

    Raises ValueError for a model in training, and if it has no such MLP, or one of another activation or type.
    """
    if model.training:
        raise ValueError("The GEMM with GELU is for inference: call model.eval() first.")
    modules = [each for each in model.modules() if type(each).__name__ in LAYERS]
    if not modules:
        raise ValueError(f"The model has no {' or '.join(LAYERS)}.")
    x = torch.linspace(-4, 4, 64)
    for module in modules:
        if not torch.allclose(getattr(module, NAMES[1])(x), torch.nn.functional.gelu(x, approximate="tanh"), atol=1e-5):
            raise ValueError(f"A {type(module).__name__} of the model has another activation than the GEMM's GELU.")
        dtype = getattr(module, NAMES[0]).weight.dtype
        if dtype not in DTYPES:
            raise ValueError(f"The GEMM's GELU is as exact as 16 bits, and the model is in {dtype}: use bf16 or fp16.")
        module.forward = MethodType(_mlp, module)
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _mlp:
            del module.forward
    return model


def _mlp(self, x):
    product, _, *rest = (getattr(self, name) for name in NAMES)
    x = fused(x, product.weight, product.bias)
    for layer in rest:
        x = layer(x)
    return x
