"""Packed projections: layers that multiply the same input become one GEMM of the library.

This is not a kernel of our own: one library GEMM with the joined weights reads the input once and has one launch. The
layers' weights become views of the joined ones, so no memory is added. It is for inference, because gradients and
optimizers need separate weights.
"""

from types import MethodType

import torch

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers of one parent that multiply the same input, in call order."""


def fused(x, weight, bias, sizes):
    """Return the projections of x, as views of one GEMM's result."""
    return torch.nn.functional.linear(x, weight, bias).split(sizes, dim=-1)


def reference(x, weight, bias, sizes):
    parts = weight.split(sizes)
    biases = [None] * len(parts) if bias is None else bias.split(sizes)
    return tuple(torch.nn.functional.linear(x, *each) for each in zip(parts, biases, strict=True))


def example(dtype, device, rows=4, columns=2048, sizes=(2048, 512, 512)):
    x = torch.randn(rows, columns, dtype=dtype, device=device)
    weight = torch.randn(sum(sizes), columns, dtype=dtype, device=device) * columns**-0.5
    return x, weight, None, list(sizes)


class _Joined:
    """The joined weights of some layers, and the projections of the last input."""

    def __init__(self, layers):
        self.sizes = [len(layer.weight) for layer in layers]
        self.weight = torch.cat([layer.weight.data for layer in layers])
        biases = [layer.bias for layer in layers]
        self.bias = None if biases[0] is None else torch.cat([bias.data for bias in biases])
        self.input, self.parts = None, {}
        for layer, part in zip(layers, self.weight.split(self.sizes), strict=True):
            layer.weight.data = part

    def projection(self, index, x):
        if index == 0:
            self.input, self.parts = x, dict(enumerate(fused(x, self.weight, self.bias, self.sizes)))
        elif x is not self.input or index not in self.parts:
            return fused(x, self.weight, self.bias, self.sizes)[index]
        part = self.parts.pop(index)
        if not self.parts:
            self.input = None
        return part


def apply(model):
    """Join the layers of each group. Raises ValueError for a model in training, and if no layers can be joined."""
    if model.training:
        raise ValueError("Packed projections are for inference: call model.eval() first.")
    groups = [[getattr(parent, name, None) for name in names] for parent in model.modules() for names in GROUPS]
    groups = [layers for layers in groups if _can_be_joined(layers)]
    if not groups:
        raise ValueError(f"The model has no linear layers {' or '.join(map(str, GROUPS))} to join.")
    for layers in groups:
        joined = _Joined(layers)
        for index, layer in enumerate(layers):
            object.__setattr__(layer, "_joined", (joined, index))
            layer.forward = MethodType(_project, layer)
    return model


def _can_be_joined(layers):
    """Return whether these are linear layers of one input size, all or none with a bias."""
    linear = all(type(layer) is torch.nn.Linear for layer in layers)
    return linear and len({(layer.in_features, layer.bias is None) for layer in layers}) == 1


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _project:
            module.weight.data = module.weight.data.clone()
            module.__dict__.pop("forward")
            module.__dict__.pop("_joined")
    return model


def _project(self, x):
    joined, index = self._joined
    return joined.projection(index, x)
