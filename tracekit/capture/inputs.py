"""Makes the inputs of a model: random tokens, images and sound of the settings' size on their device."""

import copy
import inspect
from inspect import signature
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.capture import model_kinds
from tracekit.capture.model_kinds import config_of, kind_of, pixels_of, plain, text_of
from tracekit.capture.precision import torch_dtype
from tracekit.run import Settings, require

if TYPE_CHECKING:
    from torch import nn


_SECONDS, _RATE, _TRANSCRIPT = 10, 16_000, 64
"""Inputs of sound models: seconds, samples per second, and tokens of the transcript."""


def prompt_inputs(model: "nn.Module", settings: Settings) -> dict[str, Any]:
    """Return the inputs of one forward pass over the prompt: tokens of shape (batch, seq_len), or images.

    A speech model gets one window of audio, and seq_len tokens for its decoder. A model of images and text gets one
    text per image, a sound model ten seconds at 16 kHz.
    """
    kind = kind_of(config_of(model))
    if kind == "a diffusion model":
        return model_kinds.inputs(plain(model), settings)
    if kind == "a model of images":
        return {"pixel_values": _images(model, settings)}
    if kind == "a model of images and text":
        return {"pixel_values": _images(model, settings), "input_ids": _tokens(model, settings, settings.seq_len)}
    if kind == "a model of sound":
        return {"input_values": _sound(settings)}
    if kind == "a model of speech":
        tokens = _tokens(model, settings, settings.seq_len)
        return {"input_features": _spectrograms(model, settings), "decoder_input_ids": tokens, "use_cache": True}
    inputs: dict[str, Any] = {"input_ids": _tokens(model, settings, settings.seq_len)}
    if kind == "an encoder-decoder":
        inputs["decoder_input_ids"] = _tokens(model, settings, 1)
    if kind != "an encoder":
        inputs["use_cache"] = True
    return inputs


def label_inputs(model: "nn.Module", settings: Settings) -> dict[str, Any]:
    """Return the inputs of a forward pass with a loss: the prompt, and labels of the same shape (one per image).

    Raises InputError if the model has no loss.
    """
    kind = kind_of(config_of(model))
    if kind == "a model of images and text":
        return {**prompt_inputs(model, settings), "return_loss": True}
    if "labels" not in signature(plain(model).forward).parameters:
        raise InputError(
            f"{settings.shown_name} cannot be trained as it is.",
            f"Its class, {type(plain(model)).__name__}, has no loss.",
            "Name one with a loss in the architectures of its config.json.",
        )
    if kind == "a model of sound":
        return {"input_values": _sound(settings), "labels": _tokens(model, settings, _TRANSCRIPT)}
    if kind == "a model of images":
        labels = _integers(config_of(model).num_labels, (settings.batch_size,), settings)
        return {"pixel_values": _images(model, settings), "labels": labels}
    if kind == "a model of speech":
        labels = _tokens(model, settings, settings.seq_len)
        return {"input_features": _spectrograms(model, settings), "labels": labels}
    inputs = {name: _tokens(model, settings, settings.seq_len) for name in ("input_ids", "labels")}
    return inputs if kind in ("an encoder", "an encoder-decoder") else {**inputs, "use_cache": False}


def _tokens(model: "nn.Module", settings: Settings, length: int) -> Any:
    return _integers(text_of(config_of(model)).vocab_size, (settings.batch_size, length), settings)


def _integers(below: int, shape: tuple[int, ...], settings: Settings) -> Any:
    return require("torch").randint(below, shape, device=settings.torch_device)


def _images(model: "nn.Module", settings: Settings) -> Any:
    return _noise((settings.batch_size, *pixels_of(config_of(model))), settings)


def _sound(settings: Settings) -> Any:
    return _noise((settings.batch_size, _SECONDS * _RATE), settings)


def _spectrograms(model: "nn.Module", settings: Settings) -> Any:
    """Return log-mel spectrograms of the longest audio that the encoder supports: two frames per position."""
    config = config_of(model)
    return _noise((settings.batch_size, config.num_mel_bins, 2 * config.max_source_positions), settings)


def _noise(shape: tuple[int, ...], settings: Settings) -> Any:
    return require("torch").randn(shape, device=settings.torch_device).to(torch_dtype(settings.dtype))


def fill_cache(model: "nn.Module", settings: Settings) -> Any:
    """Run the prompt of seq_len tokens and return the output with its KV cache (both caches of an encoder-decoder).

    A compiled model runs uncompiled here, because the prompt is not measured.
    """
    model = plain(model)
    inputs = prompt_inputs(model, settings)
    if "decoder_input_ids" in inputs and "input_ids" in inputs:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    return model(**inputs, **last_logits_only(model))


def unshared(cache: Any) -> Any:
    """Return a cache that starts as `cache` and grows without changing it.

    Keys and values are not copied: they grow by concatenation into new tensors.
    """
    twin = copy.copy(cache)
    if hasattr(cache, "self_attention_cache"):
        twin.self_attention_cache = unshared(cache.self_attention_cache)
        twin.cross_attention_cache = unshared(cache.cross_attention_cache)
    else:
        twin.layers = [copy.copy(layer) for layer in cache.layers]
    return twin


def continuation(model: "nn.Module", before: Any, token: Any, cache: Any) -> dict[str, Any]:
    """Return the inputs of a decode step: tokens of shape (batch, 1 or more), and the cache of the earlier tokens."""
    if not config_of(model).is_encoder_decoder:
        return {"input_ids": token, "past_key_values": cache, "use_cache": True}
    outputs = require("transformers.modeling_outputs")
    encoded = outputs.BaseModelOutput(last_hidden_state=before.encoder_last_hidden_state)
    return {"encoder_outputs": encoded, "decoder_input_ids": token, "past_key_values": cache, "use_cache": True}


def last_logits_only(model: "nn.Module") -> dict[str, Any]:
    """Return the option that runs the LM head for the last position only, as transformers' `generate` does."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(plain(model).forward).parameters else {}
