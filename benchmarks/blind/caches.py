"""The KV cache of a decode step, which is filled once and reset to its first length before each round."""

from inspect import signature
from typing import Any

import torch
from torch import nn

ROOM = 64
"""Tokens that a static cache holds beyond the prompt; a round decodes fewer."""


class FilledCache:
    def __init__(self, made: nn.Module, tokens: torch.Tensor, static: bool) -> None:
        import transformers

        self.name = "cache_params" if "cache_params" in _arguments(made) else "past_key_values"
        held: dict[str, Any] = {}
        if static and self.name == "past_key_values":  # states of a fixed size are static as they are
            held = {self.name: transformers.StaticCache(made.config, max_cache_len=tokens.shape[1] + ROOM)}
        last = {"logits_to_keep": 1} if "logits_to_keep" in _arguments(made) else {}
        self.cache = getattr(made(input_ids=tokens, use_cache=True, **held, **last), self.name)
        self._saved = [_state(layer) for layer in getattr(self.cache, "layers", [])]

    def arguments(self) -> dict[str, Any]:
        return {self.name: self.cache, "use_cache": True}

    def restart(self) -> None:
        """Restore the first tensors of dynamic layers, which grow into new ones, and the lengths of static layers."""
        for layer, (attributes, lengths) in zip(getattr(self.cache, "layers", []), self._saved, strict=True):
            layer.__dict__.update(attributes)
            for name, length in lengths.items():
                getattr(layer, name).copy_(length)


def _state(layer: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    attributes = dict(vars(layer))
    lengths = {name: each.clone() for name, each in attributes.items() if "length" in name and torch.is_tensor(each)}
    return attributes, lengths


def _arguments(made: nn.Module) -> tuple[str, ...]:
    return tuple(signature(made.forward).parameters)
