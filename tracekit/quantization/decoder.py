"""Decoder layers whose packed weights multiply one token: five kernels a layer, from norm to norm."""

from collections.abc import Sequence
from functools import partial
from types import MethodType
from typing import Any

import torch

from tracekit.analyzers.core import InputError
from tracekit.fuse import decode_attention, token_attention, weight_only_layer
from tracekit.quantization.layers import WeightOnlyLinear

_OUTPUTS = 32
"""The outputs of each product must be a multiple of it."""


class _Chain:
    """What the last layer that ran returned: its result, that times the next layer's gain, and squares."""

    def __init__(self) -> None:
        self.given: Any = None


def fuse_decoder(model: Any) -> Any:
    """Let layers like Llama's, quantized to int4 or int8, compute one token on a static cache in five kernels.

    Their projections must have been joined (`packed_projections`), an RMS norm precede attention and an MLP that SiLU
    gates. Other steps are computed as before. For inference. Raises InputError if no layer is of this kind.
    """
    layers = [layer for layer in model.modules() if _can_be_fused(layer)]
    if not layers:
        raise InputError(
            "The model has no decoder layers that can be fused.",
            "Layers like Llama's can, with packed and joined weights and without adapters.",
            "Quantize it (tracekit.quantize(model, 'int4')) and apply packed_projections first.",
        )
    chain = _Chain()
    for layer, after in zip(layers, (*layers[1:], None), strict=True):
        object.__setattr__(layer, "_after", (chain, after))
        layer.forward = MethodType(_forward, layer)
    return model


def _can_be_fused(layer: Any) -> bool:
    attention: Any = getattr(layer, "self_attn", None)
    mlp: Any = getattr(layer, "mlp", None)
    norms: list[Any] = [getattr(layer, name, None) for name in ("input_layernorm", "post_attention_layernorm")]
    joined = getattr(attention, "q_proj", None), getattr(mlp, "gate_proj", None)
    if not all(hasattr(each, "_joined") for each in joined):
        return False
    products = _products(layer)
    return (
        all(hasattr(norm, "variance_epsilon") for norm in norms)
        and len({norm.variance_epsilon for norm in norms}) == 1
        and all(isinstance(each, WeightOnlyLinear) and each.smooth is None for each in products)
        and len({each.bits for each in products}) == 1
        and all(len(each.packed) % (2 * _OUTPUTS) == 0 for each in products)
        and type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        and type(attention).__name__ in decode_attention.LAYERS
    )


def _products(layer: Any) -> Sequence[Any]:
    """Return the layers that multiply, in their order, of which some join others."""
    attention, mlp = layer.self_attn, layer.mlp
    return attention.q_proj._joined[0].layer, attention.o_proj, mlp.gate_proj._joined[0].layer, mlp.down_proj


def _forward(layer: Any, hidden_states: torch.Tensor, attention_mask: Any = None, **options: Any) -> torch.Tensor:
    chain, after = layer._after
    given, chain.given = chain.given, None
    stored = None
    if hidden_states.shape[:2] == (1, 1):
        caches = options.get("past_key_values")
        stored = decode_attention.stored_keys(layer.self_attn, hidden_states, attention_mask, caches)
    if stored is None:
        out: torch.Tensor = type(layer).forward(layer, hidden_states, attention_mask=attention_mask, **options)
        return out
    products = _products(layer)
    if given is None or given[0] is not hidden_states:
        given = (hidden_states, *_begun(hidden_states[0], layer.input_layernorm.weight, products[0].bits))
    norms = layer.post_attention_layernorm, (layer if after is None else after).input_layernorm
    tensors = [[getattr(each, name) for each in products] for name in ("packed", "scale", "bias")]
    heads = [layer.self_attn.head_dim, *layer.self_attn.q_proj._joined[0].sizes]
    position = options["position_embeddings"]
    rest = (*(norm.weight for norm in norms), norms[0].variance_epsilon, *position, *stored, attention_mask)
    made: tuple[torch.Tensor, ...] = _layer(*given, *tensors, products[0].bits, *rest, layer.self_attn.scaling, heads)
    chain.given = None if after is None else made
    return made[0]


def _begun(x: torch.Tensor, gain: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows times the gain in the order of the kernels, and the sum of squares of each."""
    return weight_only_layer.ordered(x * gain, bits), x.float().square().sum(1, keepdim=True)


@torch.library.custom_op("tracekit::decoder_layer", mutates_args=("keys", "values", "length"))
def _layer(
    x: torch.Tensor,
    gained: torch.Tensor,
    squares: torch.Tensor,
    packed: Sequence[torch.Tensor],
    scale: Sequence[torch.Tensor],
    bias: Sequence[torch.Tensor | None],
    bits: int,
    gain: torch.Tensor,
    next_gain: torch.Tensor,
    epsilon: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    length: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    heads: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the layer's result of a token, that times the next gain in the kernels' order, and sums of its squares.

    `heads` are the size of a head and the outputs for q, k and v.
    """
    multiply, weights = partial(weight_only_layer.fused, last=False), list(zip(packed, scale, bias, strict=True))
    size, *sizes = heads
    parts = multiply(gained, *weights[0], bits, squares, epsilon).split(sizes, dim=1)
    q, k, v = (each.view(1, -1, 1, size) for each in parts)
    out = token_attention.fused(q, k, v, cos, sin, keys, values, length, mask, scaling, 128 // bits, False)
    row = x.view(1, -1)
    row, gained, squares = multiply(out.view(1, -1), *weights[1], bits, residual=row, gain=gain)
    gated = multiply(gained, *weights[2], bits, squares, epsilon, gated=True)
    row, gained, squares = multiply(gated, *weights[3], bits, residual=row, gain=next_gain, last=True)
    return row.view_as(x), gained, squares


@_layer.register_fake
def _shaped(x: Any, gained: Any, squares: Any, packed: Any, *rest: Any) -> Any:
    bits: int = rest[2]
    blocks = weight_only_layer.blocks(len(packed[3]), packed[3].shape[1] * 32 // bits, bits)
    return torch.empty_like(x), torch.empty_like(gained), squares.new_empty(1, blocks)
