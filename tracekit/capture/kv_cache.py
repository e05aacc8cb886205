"""Keeps the KV cache between decode steps."""

import copy
import inspect
from typing import TYPE_CHECKING, Any

from tracekit.capture.inputs import prompt_inputs
from tracekit.capture.model_kinds import config_of, plain
from tracekit.capture.packages import require
from tracekit.capture.settings import Settings

if TYPE_CHECKING:
    from torch import nn


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
