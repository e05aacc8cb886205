"""Random inputs of a model: tokens, images, sounds or noisy latents."""

from typing import Any

import torch
from catalogue import Model
from diffusion import CHANNELS, SIDE
from torch import nn

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
