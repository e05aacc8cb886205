"""Lets models of transformers attend with the kernel of one token on a static cache."""

from types import MethodType

import torch

from tracekit.fuse.kernels import token_attention

LAYERS = ("LlamaAttention", "MistralAttention", "Qwen2Attention")
"""Classes of attention in transformers that rotate halves of heads, with no norm of heads."""


def apply(model):
    """Let layers of LAYERS in a model of transformers attend with the kernel, on a GPU, one token on a static cache."""
    for module in model.modules():
        if type(module).__name__ in LAYERS:
            module.forward = MethodType(_forward, module)
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _forward:
            module.__dict__.pop("forward")
    return model


def _forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **options):
    stored = stored_keys(self, hidden_states, attention_mask, past_key_values)
    if stored is None:
        options |= {"position_embeddings": position_embeddings, "past_key_values": past_key_values}
        return type(self).forward(self, hidden_states, attention_mask=attention_mask, **options)
    projections = (layer(hidden_states) for layer in (self.q_proj, self.k_proj, self.v_proj))
    q, k, v = (each.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in projections)
    out = _op(q, k, v, *position_embeddings, *stored, attention_mask, self.scaling)
    return self.o_proj(out.flatten(2)), None


def stored_keys(attention, x, mask, caches):
    """Return the keys, values and length of a static cache to which the kernel adds a token; None if it cannot."""
    layers, size = getattr(caches, "layers", ()), attention.head_dim
    layer = layers[attention.layer_idx] if attention.layer_idx < len(layers) else None
    if type(layer).__name__ != "StaticLayer" or not layer.is_initialized or layer.keys.dtype != x.dtype:
        return None
    single = _runs_on(x) and x.shape[1] == 1 and not (torch.is_grad_enabled() and x.requires_grad)
    small = attention.num_key_value_groups <= 16 and size % 2 == 0 and size * x.element_size() <= 512
    plain = mask is None or (mask.dtype == torch.bool and mask.shape[1:3] == (1, 1))
    return (layer.keys, layer.values, layer.cumulative_length) if single and small and plain else None


def _runs_on(x):
    return x.is_cuda


@torch.library.custom_op("tracekit::decode_attention", mutates_args=("keys", "values", "length"))
def _op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    length: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    return token_attention.fused(q, k, v, cos, sin, keys, values, length, mask, scale)


@_op.register_fake
def _shaped(q, *_):
    return q.new_empty(q.shape[0], 1, q.shape[1], q.shape[3])
