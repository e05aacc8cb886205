"""Decoding on a KV cache of fixed size, whose addresses and shapes stay the same from token to token."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.annotate import Emitter, phase
from tracekit.capture.inputs import prompt_inputs
from tracekit.capture.kv_cache import last_logits_only
from tracekit.capture.model_kinds import config_of, kind_of, plain
from tracekit.capture.packages import require
from tracekit.capture.settings import Settings
from tracekit.capture.workloads import Step

if TYPE_CHECKING:
    from torch import nn

Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]
"""Makes of a function on fixed tensors one that does the same: a CUDA graph of it, or itself."""


def as_it_is(function: Callable[[], Any]) -> Callable[[], Any]:
    return function


class StaticCache:
    """The cache of transformers with one fixed length for all layers, that can be set back in one launch."""

    def __init__(self, model: "nn.Module", tokens: int) -> None:
        self._torch, caches = require("torch"), require("transformers.cache_utils")
        config = config_of(model).get_text_config(decoder=True)
        _check(config_of(model), config, tokens)
        layers = [caches.StaticLayer(max_cache_len=tokens) for _ in range(config.num_hidden_layers)]
        self.cache = caches.Cache(layers=layers)
        self._saved: list[Any] = []

    def save(self) -> None:
        """Remember how many tokens it holds."""
        self._saved = [length.clone() for length in self._lengths()]

    def restore(self) -> None:
        """Hold as many tokens as when it was saved."""
        self._torch._foreach_copy_(self._lengths(), self._saved)

    def _lengths(self) -> list[Any]:
        return [layer.cumulative_length for layer in self.cache.layers]


def _check(config: Any, text: Any, tokens: int) -> None:
    window = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    if kind_of(config) != "a decoder":
        raise TracekitError("A static cache cannot be used here.", "Only models that are decoders have one.")
    if window is not None and window < tokens:
        raise TracekitError(
            "A static cache cannot be used here.",
            f"The model attends to a window of {window} tokens, which slides over {tokens}.",
            "Ask for fewer tokens with --seq-len.",
        )


def decode(model: "nn.Module", settings: Settings, record: Recorder = as_it_is) -> Step:
    """A step that decodes one token on a filled cache."""
    torch = require("torch")
    held = _filled(model, settings, settings.seq_len + 1)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def one_token() -> Any:
        held.restore()
        return _forward(model, token, held).logits

    with torch.no_grad():
        recorded = record(one_token)

    def step(emitter: Emitter) -> Any:
        with torch.no_grad(), phase("decode", emitter):
            return recorded()

    return step


def generate(model: "nn.Module", settings: Settings, record: Recorder = as_it_is) -> Step:
    """A step that makes new_tokens, the first of them by the prefill."""
    torch = require("torch")
    inputs = {**prompt_inputs(model, settings), **last_logits_only(model)}
    held = _Empty(model, settings.seq_len + settings.new_tokens)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def prompt() -> Any:
        held.restore()
        logits = model(**inputs, past_key_values=held.cache).logits
        token.copy_(logits[:, -1:].argmax(-1))
        return logits

    def one_token() -> None:
        token.copy_(_forward(model, token, held).logits[:, -1:].argmax(-1))

    with torch.no_grad():
        held.fill_once(prompt)
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


class _Empty(StaticCache):
    """A cache that is set back to hold nothing. Its tensors appear when it is filled first."""

    def restore(self) -> None:
        if self._saved:
            super().restore()

    def fill_once(self, prompt: Callable[[], Any]) -> None:
        prompt()
        self._saved = [self._torch.zeros_like(length) for length in self._lengths()]


def _filled(model: "nn.Module", settings: Settings, tokens: int) -> StaticCache:
    torch, uncompiled = require("torch"), plain(model)
    held = StaticCache(uncompiled, tokens)
    with torch.no_grad():
        uncompiled(**prompt_inputs(uncompiled, settings), **last_logits_only(uncompiled), past_key_values=held.cache)
    held.save()
    return held


def _forward(model: "nn.Module", token: Any, held: StaticCache) -> Any:
    return model(input_ids=token, past_key_values=held.cache, use_cache=True)
