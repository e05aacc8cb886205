"""The list of models in models.toml."""

import importlib
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Model:
    name: str
    of: str
    """The published model."""
    kind: str
    """dense, moe, encoder, encoder-decoder, vision, audio, state-space or diffusion."""
    class_name: str
    workloads: tuple[str, ...]
    """The workloads that the model supports: prefill (one forward pass), decode and train."""
    settings: dict[str, Any]
    held_out: int = 0
    """The first round that may draw it, before which it is not used for development; 0 if it is not held out."""
    sdpa: bool = True
    """Whether it supports both scaled_dot_product_attention and eager attention."""
    static_cache: bool = True
    """Whether it can decode with a static cache."""
    longest: int = 2048
    """Maximum number of tokens in a sequence."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Settings of its tiny version, if it needs others than all models."""

    @property
    def has_length(self) -> bool:
        """Whether its inputs are sequences of any length."""
        return self.kind not in ("vision", "audio", "diffusion")

    @property
    def depth(self) -> int:
        """Number of layers, or of blocks in all stages."""
        settings = self.settings
        names = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
        return next((settings[name] for name in names if name in settings), 0) or sum(settings["depths"])


def models() -> dict[str, Model]:
    rows = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))
    return {name: _model(name, row) for name, row in rows.items()}


def _model(name: str, row: dict[str, Any]) -> Model:
    row = {"class_name" if key == "class" else key: value for key, value in row.items()}
    return Model(name=name, **{**row, "workloads": tuple(row["workloads"])})


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


SECONDS = 5
_RATE = 16_000
"""Samples per second of models whose input is a waveform."""


def inputs(made: nn.Module, model: Model, batch: int, length: int, train: bool) -> dict[str, Any]:
    """Return the inputs of one forward pass on the model's device, with labels in training."""
    first = next(made.parameters())
    with torch.device(first.device):
        if model.kind == "diffusion":
            return _noisy(batch, first.dtype, train)
        if model.has_length:
            return _text(made, model, batch, length, train)
        return _signal(made, batch, first.dtype, train)


def _noisy(batch: int, dtype: torch.dtype, train: bool) -> dict[str, Any]:
    shape = (batch, CHANNELS, SIDE, SIDE)
    noise = {"noise": torch.randn(shape, dtype=dtype)} if train else {}
    times, classes = torch.randint(1000, (batch,)), torch.randint(1000, (batch,))
    return {"latents": torch.randn(shape, dtype=dtype), "times": times, "classes": classes, **noise}


def _text(made: nn.Module, model: Model, batch: int, length: int, train: bool) -> dict[str, Any]:
    config: Any = made.config
    tokens = torch.randint(3, config.vocab_size, (batch, length))
    if model.kind == "encoder":
        return {"input_ids": tokens} | _classes(config, batch, train)
    if train:
        return {"input_ids": tokens, "labels": tokens} | ({} if config.is_encoder_decoder else {"use_cache": False})
    return {"input_ids": tokens} | ({"decoder_input_ids": tokens[:, :1]} if config.is_encoder_decoder else {})


def _signal(made: nn.Module, batch: int, dtype: torch.dtype, train: bool) -> dict[str, Any]:
    config: Any = made.config
    if config.model_type == "whisper":
        sound = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions, dtype=dtype)
        tokens = torch.randint(3, config.vocab_size, (batch, 64 if train else 1))
        return {"input_features": sound, "labels" if train else "decoder_input_ids": tokens}
    if hasattr(config, "conv_stride"):
        signal = {"input_values": torch.randn(batch, SECONDS * _RATE, dtype=dtype)}
    elif hasattr(config, "num_mel_bins"):
        signal = {"input_values": torch.randn(batch, config.max_length, config.num_mel_bins, dtype=dtype)}
    else:
        size = getattr(config, "image_size", 224)
        sides = (size, size) if isinstance(size, int) else tuple(size)
        signal = {"pixel_values": torch.randn(batch, config.num_channels, *sides, dtype=dtype)}
    return signal | _classes(config, batch, train)


def _classes(config: Any, batch: int, train: bool) -> dict[str, Any]:
    return {"labels": torch.randint(config.num_labels, (batch,))} if train else {}


SIDE, CHANNELS = 32, 4


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        q, k, v = self.qkv(self.norm1(x) * (1 + scale1) + shift1).unflatten(-1, (3, self.heads, -1)).unbind(2)
        attended = functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))
        x = x + gate1 * self.out(attended.transpose(1, 2).flatten(2))
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, hidden_size: int, num_hidden_layers: int, num_attention_heads: int, patch_size: int) -> None:
        super().__init__()
        self.patch, self.width = patch_size, hidden_size
        tokens = (SIDE // patch_size) ** 2
        self.embed = nn.Conv2d(CHANNELS, hidden_size, patch_size, stride=patch_size)
        self.positions = nn.Parameter(torch.randn(1, tokens, hidden_size) * 0.02)
        self.labels = nn.Embedding(1001, hidden_size)
        self.time = nn.Sequential(nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))
        self.blocks = nn.ModuleList(Block(hidden_size, num_attention_heads) for _ in range(num_hidden_layers))
        self.norm = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.head = nn.Linear(hidden_size, patch_size**2 * CHANNELS)

    def forward(self, latents: Tensor, times: Tensor, classes: Tensor, noise: Tensor | None = None) -> SimpleNamespace:
        half = torch.arange(128, device=latents.device) * (-math.log(10_000) / 128)
        angles = times[:, None].float() * half.exp()
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1).to(latents.dtype)
        x = self.embed(latents).flatten(2).transpose(1, 2) + self.positions
        condition = self.time(waves) + self.labels(classes)
        for block in self.blocks:
            x = block(x, condition)
        side = SIDE // self.patch
        pixels = self.head(self.norm(x)).unflatten(1, (side, side)).unflatten(-1, (self.patch, self.patch, CHANNELS))
        logits = pixels.permute(0, 5, 1, 3, 2, 4).reshape(latents.shape)
        return SimpleNamespace(logits=logits, loss=None if noise is None else functional.mse_loss(logits, noise))
