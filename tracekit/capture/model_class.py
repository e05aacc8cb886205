"""Chooses the transformers class that builds a configuration."""

from typing import Any

from tracekit.analyzers.errors import InputError
from tracekit.capture import diffusion
from tracekit.capture.packages import require
from tracekit.capture.settings import Attention

_HINT = "Correct its config.json, or give the directory that save_pretrained wrote."


def model_class(config: Any, chosen: str = "") -> Any:
    """Return the class `chosen`, else the declared one, else the causal class of the model type.

    Raises InputError if the declared class cannot build the configuration, or transformers has no class for it.
    """
    if isinstance(config, diffusion.DiffusionConfig):
        return getattr(require("diffusers"), config.class_name)
    transformers = require("transformers")
    for name in (chosen, *architectures(config)):
        if name and hasattr(transformers, name):
            return _checked(getattr(transformers, name), name, config)
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    kind = config.model_type
    raise InputError(f"transformers has no model of type {kind!r}.", "It has only a configuration of this type.", _HINT)


def architectures(config: Any) -> list[str]:
    """Return the class names that the configuration declares; [] if there are none."""
    declared = getattr(config, "architectures", None) or []
    if not isinstance(declared, list) or not all(isinstance(name, str) for name in declared):
        raise InputError(
            "The architectures of the model are wrong.", f"{declared!r} is not a list of class names.", _HINT
        )
    return declared


def _checked(declared: Any, name: str, config: Any) -> Any:
    base = require("transformers").PreTrainedModel
    if not isinstance(declared, type) or base not in declared.__mro__:
        raise InputError("The architectures of the model are wrong.", f"{name} is not a model of transformers.", _HINT)
    expected: Any = getattr(declared, "config_class", None)
    if expected is not None and not isinstance(config, expected):
        why = f"{name} is not a model of type {config.model_type!r}."
        raise InputError("The architectures of the model are wrong.", why, _HINT)
    return declared


def usable_attention(config: Any, requested: Attention) -> Attention:
    """Return the attention of a run: eager if torch could not fuse that of the model.

    Raises InputError if flash attention is requested and the model has no fused attention.
    """
    if isinstance(config, diffusion.DiffusionConfig):
        return diffusion.usable_attention(requested)
    if requested == "eager" or model_class(config)._supports_sdpa:
        return requested
    if requested == "flash":
        raise InputError(
            f"Models of type {config.model_type!r} have no flash attention.",
            "They do not call torch's fused attention.",
            "Leave out --attention.",
        )
    return "eager"
