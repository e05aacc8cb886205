"""Packed projections: layers that multiply the same input become one GEMM of the library.

This is not a kernel of our own: one library GEMM with the joined weights reads the input once and has one launch. The
layers' weights become views of the joined ones, so no memory is added. It is for inference, because gradients and
optimizers need separate weights. Layers of `tracekit.quantize` with packed weights are joined, too.
"""

from copy import copy
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
    """A layer that joins some layers, and its projections of the last input."""

    def __init__(self, layers):
        self.sizes = [len(_tensors(layer)[0]) for layer in layers]
        self.layer, self.input, self.parts = copy(layers[0]), None, {}
        for kind in ("_parameters", "_buffers"):
            setattr(self.layer, kind, {name: self._together(name, layers) for name in getattr(layers[0], kind)})

    def _together(self, name, layers):
        """Return the joined tensor of this name, of which those of the layers become views."""
        parts = [getattr(layer, name) for layer in layers]
        if parts[0] is None:
            return None
        joined = torch.cat([part.data for part in parts])
        for part, view in zip(parts, joined.split(self.sizes), strict=True):
            part.data = view
        return torch.nn.Parameter(joined, False) if isinstance(parts[0], torch.nn.Parameter) else joined

    def projections(self, x):
        return self.layer(x).split(self.sizes, dim=-1)

    def projection(self, index, x):
        if index == 0:
            self.input, self.parts = x, dict(enumerate(self.projections(x)))
        elif x is not self.input or index not in self.parts:
            return self.projections(x)[index]
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
    """Return whether these are linear layers of one kind and input size, all or none with a bias."""
    if not all(map(_is_linear, layers)):
        return False
    kinds = {(type(each), getattr(each, "bits", 16), *(part.shape[1:] for part in _tensors(each))) for each in layers}
    return len(kinds) == 1


def _is_linear(layer):
    """Return whether each tensor of the layer has a row for each output: those of adapters and factors do not."""
    kind = type(layer) is torch.nn.Linear or (hasattr(layer, "packed") and layer.smooth is None)
    return kind and {name for name, _ in layer.named_parameters()} <= {"weight", "bias"}


def _tensors(layer):
    return (*layer.parameters(recurse=False), *layer.buffers(recurse=False))


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _project:
            for part in _tensors(module):
                part.data = part.data.clone()
            module.__dict__.pop("forward")
            module.__dict__.pop("_joined")
    return model


def _project(self, x):
    joined, index = self._joined
    return joined.projection(index, x)
