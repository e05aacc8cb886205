"""Decoder layers of few tokens, in which norms, gates and residuals are part of packed layers' kernels."""

import sys
from types import MethodType
from typing import Any

import torch

from tracekit.analyzers.core import InputError
from tracekit.quantization.layers import WeightOnlyLinear

_MOST_TOKENS = 8
"""Largest number of tokens that a kernel of the packed layers takes."""


def fuse_decoder(model: Any) -> Any:
    """Let layers like Llama's, quantized to int4 or int8, compute few tokens in four kernels and those of attention.

    Their projections must have been joined (`packed_projections`), and an RMS norm precede attention and an MLP that
    SiLU gates. For inference; more tokens are computed as before. Raises InputError if no layer is of this kind.
    """
    layers = [layer for layer in model.modules() if _can_be_fused(layer)]
    if not layers:
        raise InputError(
            "The model has no decoder layers that can be fused.",
            "Layers like Llama's can, with packed and joined weights and without adapters.",
            "Quantize it (tracekit.quantize(model, 'int4')) and apply packed_projections first.",
        )
    for layer in layers:
        layer.forward = MethodType(_forward, layer)
    return model


def _can_be_fused(layer: Any) -> bool:
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    norms = [getattr(layer, name, None) for name in ("input_layernorm", "post_attention_layernorm")]
    packed = [getattr(attention, "o_proj", None), getattr(mlp, "down_proj", None)]
    joined = [getattr(attention, "q_proj", None), getattr(mlp, "gate_proj", None)]
    activation = type(getattr(mlp, "act_fn", None)).__name__
    return (
        all("RMSNorm" in type(norm).__name__ and hasattr(norm, "variance_epsilon") for norm in norms)
        and all(isinstance(each, WeightOnlyLinear) and each.smooth is None for each in packed)
        and all(hasattr(each, "_joined") for each in joined)
        and activation in ("SiLU", "SiLUActivation")
        and not hasattr(attention, "q_norm")
    )


def _forward(layer: Any, hidden_states: torch.Tensor, attention_mask: Any = None, **options: Any) -> torch.Tensor:
    if hidden_states.shape[:-1].numel() > _MOST_TOKENS:
        out: torch.Tensor = type(layer).forward(layer, hidden_states, attention_mask=attention_mask, **options)
        return out
    gate = layer.mlp.gate_proj._joined[0].layer
    attended = _attended(layer, hidden_states, attention_mask, **options)
    x = _product(attended, layer.self_attn.o_proj, residual=hidden_states)
    return _product(_product(x, gate, layer.post_attention_layernorm, True), layer.mlp.down_proj, residual=x)


def _attended(
    layer: Any, x: torch.Tensor, mask: Any, position_embeddings: Any, past_key_values: Any = None, **options: Any
) -> torch.Tensor:
    attention = layer.self_attn
    joined = attention.q_proj._joined[0]
    code = sys.modules[type(attention).__module__]
    parts = _product(x, joined.layer, layer.input_layernorm).split(joined.sizes, dim=-1)
    q, k, v = (each.view(*x.shape[:-1], -1, attention.head_dim).transpose(1, 2) for each in parts)
    q, k = code.apply_rotary_pos_emb(q, k, *position_embeddings)
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, attention.layer_idx)
    attend = code.ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, code.eager_attention_forward
    )
    out = attend(attention, q, k, v, mask, dropout=0.0, scaling=attention.scaling, **options)[0]
    return out.reshape(*x.shape[:-1], -1)


def _product(x: torch.Tensor, layer: Any, norm: Any = None, gated: bool = False, residual: Any = None) -> torch.Tensor:
    gain, epsilon = (None, 0.0) if norm is None else (norm.weight, norm.variance_epsilon)
    out: torch.Tensor = _block(x, layer.packed, layer.scale, layer.bias, layer.bits, gain, epsilon, gated, residual)
    return out


@torch.library.custom_op("tracekit::weight_only_block", mutates_args=())
def _block(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    bits: int,
    gain: torch.Tensor | None,
    epsilon: float,
    gated: bool,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    from tracekit.fuse import weight_only_product as kernel

    multiply = kernel.fused if x.is_cuda else kernel.reference
    out: torch.Tensor = multiply(x, packed, scale, bias, bits, gain, epsilon, gated, residual)
    return out


@_block.register_fake
def _shaped(x: Any, packed: Any, *rest: Any) -> Any:
    return x.new_empty(*x.shape[:-1], len(packed) // (1 + rest[5]))
