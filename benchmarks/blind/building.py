"""Builds models with random weights on the device and in the dtype of a run."""

import importlib
from typing import Any

import torch
from catalogue import Model
from torch import nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

_SIZES = {
    64: ("hidden_size", "d_model", "embedding_size", "word_embed_proj_dim"),
    128: ("intermediate_size", "moe_intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"),
    4: ("num_attention_heads", "num_heads", "n_head", "encoder_attention_heads", "decoder_attention_heads"),
    2: ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers", "num_key_value_heads"),
    16: ("head_dim", "d_kv", "state_size", "num_conv_pos_embeddings"),
    8: ("num_experts", "num_local_experts"),
    512: ("vocab_size",),
}
"""Settings of tiny models, for tests on a CPU."""
_TINY = {name: size for size, names in _SIZES.items() for name in names}


def build(model: Model, dtype: str, device: str, attention: str = "", tiny: bool = False) -> nn.Module:
    """Return the model in evaluation mode. `attention` is eager or sdpa, or "" for models without a choice."""
    settings = model.settings | _shrunk(model.settings) | model.tiny if tiny else model.settings
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])
    try:
        with torch.device(device):
            return _made(model.class_name, settings, attention).to(device, DTYPES[dtype]).eval()
    finally:
        torch.set_default_dtype(before)


def _made(class_name: str, settings: dict[str, Any], attention: str) -> nn.Module:
    made = class_of(class_name)
    if ":" in class_name:
        return made(**settings)
    config = made.config_class(**settings)
    if attention:
        config._attn_implementation = attention
    return made(config)


def class_of(class_name: str) -> Any:
    """Import a model's class: MODULE:CLASS, or a class of transformers."""
    module, _, own = class_name.rpartition(":")
    return getattr(importlib.import_module(module or "transformers"), own)


def _shrunk(settings: dict[str, Any]) -> dict[str, Any]:
    small = {name: _TINY[name] for name in settings if name in _TINY}
    few = {"pad_token_id": 0} if "pad_token_id" in settings else {}
    attention_types = {"attention_types": [[["global", "local"], 1]]} if "attention_types" in settings else {}
    return small | few | attention_types
