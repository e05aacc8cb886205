"""Padded projection: a layer with an odd number of outputs becomes a GEMM of whole vectors.

This is not a kernel of our own. A row of results that is not a multiple of 16 bytes cannot be stored as vectors, so the
library takes a GEMM that stores one element at a time, at a fraction of its rate. With some rows of zeros below the
weights, it takes its fastest one. The results are a view without the padding. The layer's weights become a view of the
padded ones, so only the zeros need memory, and tied embeddings stay tied. It is for inference.
"""

from types import MethodType

import torch

NAMES = ("lm_head",)
"""Names of the layers in their parents."""
VECTOR_BYTES = 16


def fused(x, weight, bias, outputs):
    """Return the projection of x by weights that `padded` made, without the padding."""
    return torch.nn.functional.linear(x, weight, bias)[..., :outputs]


def padded(parameter):
    """Return the weights, or the bias, padded with zeros to a whole vector of outputs."""
    missing = -len(parameter) % (VECTOR_BYTES // parameter.element_size())
    return torch.cat([parameter, parameter.new_zeros(missing, *parameter.shape[1:])])


def reference(x, weight, bias, outputs):
    return torch.nn.functional.linear(x, weight[:outputs], None if bias is None else bias[:outputs])


def example(dtype, device, rows=4, columns=768, outputs=50257):
    x = torch.randn(rows, columns, dtype=dtype, device=device)
    weight = torch.randn(outputs, columns, dtype=dtype, device=device) * columns**-0.5
    return x, padded(weight), None, outputs


def apply(model):
    """Pad the weights of the layers. Raises ValueError for a model in training, and if there is no such layer."""
    if model.training:
        raise ValueError("Padded projections are for inference: call model.eval() first.")
    layers = [layer for name, layer in model.named_modules() if name.rpartition(".")[2] in NAMES]
    layers = [layer for layer in layers if type(layer) is torch.nn.Linear]
    if not layers:
        raise ValueError(f"No linear layer is named {' or '.join(NAMES)}.")
    for layer in layers:
        weight = padded(layer.weight.data)
        layer.weight.data = weight[: layer.out_features]
        layer._padded = weight, None if layer.bias is None else padded(layer.bias.data)
        layer.forward = MethodType(_project, layer)
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _project:
            module.weight.data = module.weight.data.clone()
            del module.forward, module._padded
    return model


def _project(self, x):
    return fused(x, *self._padded, self.out_features)
