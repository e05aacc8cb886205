"""Decodes with a KV cache of fixed size, whose addresses and shapes do not change from token to token."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import TracekitError
from tracekit.capture import Emitter, Step, config_of, kind_of, last_logits_only, phase, plain, prompt_inputs
from tracekit.run import Settings, require

if TYPE_CHECKING:
    from torch import nn


Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]
"""Turns a function on fixed tensors into an equivalent one, such as the replay of its CUDA graph."""


def unrecorded(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function itself."""
    return function


class StaticCache:
    """The KV cache of transformers, with one fixed length for all layers, whose lengths are reset in one launch."""

    def __init__(self, model: "nn.Module", tokens: int) -> None:
        self._torch, caches = require("torch"), require("transformers.cache_utils")
        config = config_of(model).get_text_config(decoder=True)
        _check(config_of(model), config, tokens)
        layers = [caches.StaticLayer(max_cache_len=tokens) for _ in range(config.num_hidden_layers)]
        self.cache = caches.Cache(layers=layers)
        self._saved: list[Any] = []

    def save(self) -> None:
        """Save how many tokens the cache holds."""
        self._saved = [length.clone() for length in self._lengths()]

    def restore(self) -> None:
        """Reset the cache to as many tokens as when it was saved."""
        self._torch._foreach_copy_(self._lengths(), self._saved)

    def _lengths(self) -> list[Any]:
        return [layer.cumulative_length for layer in self.cache.layers]


def _check(config: Any, text: Any, tokens: int) -> None:
    window = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    if kind_of(config) != "a decoder":
        raise TracekitError("A static cache cannot be used here.", "Only decoders have one.")
    if window is not None and window < tokens:
        raise TracekitError(
            "A static cache cannot be used here.",
            f"The model attends to a sliding window of {window} tokens, and {tokens} are needed.",
            "Use fewer tokens: --seq-len.",
        )


def decode(model: "nn.Module", settings: Settings, record: Recorder = unrecorded) -> Step:
    """Return a step that decodes one token on a filled cache."""
    torch = require("torch")
    cache = _filled(model, settings, settings.seq_len + 1)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def one_token() -> Any:
        cache.restore()
        return _forward(model, token, cache).logits

    with torch.no_grad():
        recorded = record(one_token)

    def step(emitter: Emitter) -> Any:
        with torch.no_grad(), phase("decode", emitter):
            return recorded()

    return step


def generate(model: "nn.Module", settings: Settings, record: Recorder = unrecorded) -> Step:
    """Return a step that generates `new_tokens` tokens, of which the prefill computes the first."""
    torch = require("torch")
    inputs = {**prompt_inputs(model, settings), **last_logits_only(model)}
    cache = _EmptyCache(model, settings.seq_len + settings.new_tokens)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def prompt() -> Any:
        cache.restore()
        logits = model(**inputs, past_key_values=cache.cache).logits
        token.copy_(logits[:, -1:].argmax(-1))
        return logits

    def one_token() -> None:
        token.copy_(_forward(model, token, cache).logits[:, -1:].argmax(-1))

    with torch.no_grad():
        cache.fill_once(prompt)
        prefill = record(prompt)
        decoded = record(one_token)

    def step(emitter: Emitter) -> Any:
        with torch.no_grad():
            with phase("prefill", emitter):
                logits = prefill()
            for _ in range(settings.new_tokens - 1):
                with phase("decode", emitter):
                    decoded()
        return logits

    return step


class _EmptyCache(StaticCache):
    """A cache that is reset to contain no tokens. Its tensors are allocated when it is first filled."""

    def restore(self) -> None:
        if self._saved:
            super().restore()

    def fill_once(self, prompt: Callable[[], Any]) -> None:
        prompt()
        self._saved = [self._torch.zeros_like(length) for length in self._lengths()]


def _filled(model: "nn.Module", settings: Settings, tokens: int) -> StaticCache:
    torch, uncompiled = require("torch"), plain(model)
    cache = StaticCache(uncompiled, tokens)
    with torch.no_grad():
        uncompiled(**prompt_inputs(uncompiled, settings), **last_logits_only(uncompiled), past_key_values=cache.cache)
    cache.save()
    return cache


def _forward(model: "nn.Module", token: Any, cache: StaticCache) -> Any:
    return model(input_ids=token, past_key_values=cache.cache, use_cache=True)
