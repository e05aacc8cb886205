"""Files of quantized models, as safetensors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tracekit.analyzers.core import Count, InputError, TracekitError, limits
from tracekit.quantization.quantizing import LINEAR, SMALLEST_GROUP, WITHOUT_GROUPS, Format, inputs_of, quantized_layer
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


_Made = tuple[Format, Count, bool]
"""Format, group and whether there is an adapter."""

_SAME = "Load it into a new instance of the original model, which load quantizes."
_METADATA = "tracekit packed weights, 4"
"""Identifies the description of layers in a file, and the order in which weights are packed. It changes with the order
or the description."""


def save(model: "nn.Module", path: str | Path) -> None:
    """Write a model that `quantize` returned, adapters included, as safetensors."""
    named = model.named_modules(remove_duplicate=False)
    layers = {name: made for name, layer in named if (made := _made(layer)) is not None}
    if not layers:
        raise InputError(
            "The model has no quantized layers.", "", "Quantize it first: tracekit.quantize(model, 'int4')"
        )
    files = require("safetensors.torch")
    try:
        files.save_model(model, str(path), metadata={_METADATA: json.dumps(layers)})
    except (OSError, require("safetensors").SafetensorError) as error:
        raise TracekitError(f"{path} cannot be written.", f"{error}.") from error


def _made(layer: "nn.Module") -> _Made | None:
    """Return what a quantized layer is made of; None for any other layer."""
    from tracekit.quantization.layers import EightBitLinear, WeightOnlyLinear

    adapted = hasattr(layer, "lora_a")
    if isinstance(layer, WeightOnlyLinear):
        group = layer.packed.shape[1] * 32 // layer.bits // layer.scale.shape[1]
        return ("awq" if layer.smooth is not None else "int4" if layer.bits == 4 else "int8"), group, adapted
    others: dict[str, Format] = {EightBitLinear.__name__: "smoothquant", "Linear4bit": "nf4"}
    others |= dict.fromkeys(LINEAR, "none") if adapted else {}
    return (others[type(layer).__name__], 0, adapted) if type(layer).__name__ in others else None


def load(model: "nn.Module", path: str | Path) -> "nn.Module":
    """Load a file that `save` wrote into a model of the same architecture that is not quantized, and return the
    model."""
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(str(path), framework="pt") as stored:
            metadata = stored.metadata() or {}
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} cannot be read.", f"{error}.", "Give a file that save wrote.") from error
    if _METADATA not in metadata:
        why = "Only what this version of tracekit.quantize wrote can be read."
        raise InputError(f"{path} contains no quantized model.", why, "Quantize the model again, and save it.")
    wanted = _wanted(metadata[_METADATA], path)
    layers = {name: _layer_named(model, name, str(path)) for name in wanted}
    for name, (to, group, _) in wanted.items():
        fits = group and group % SMALLEST_GROUP == 0 and inputs_of(layers[name]) % group == 0
        if to not in WITHOUT_GROUPS and not fits:
            why = f"{name} has {inputs_of(layers[name])} inputs, which do not form groups of {group}."
            raise InputError(f"{path} belongs to another model.", why, _SAME)
    if any(adapted for *_, adapted in wanted.values()):
        model.requires_grad_(False)
    made: dict[nn.Module, nn.Module] = {}
    for name, (to, group, adapted) in wanted.items():
        parent, _, leaf = name.rpartition(".")
        if layers[name] not in made:
            made[layers[name]] = quantized_layer(layers[name], to, group, adapted)
        setattr(model.get_submodule(parent), leaf, made[layers[name]])
    state = require("safetensors.torch").load_file(str(path))
    state |= {name: state[kept] for name, kept in metadata.items() if kept in state}  # tensors that share memory
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"{path} belongs to another model.", f"{error}"[:300], _SAME) from error
    return model


def _wanted(text: str, path: str | Path) -> dict[str, _Made]:
    try:
        return msgspec.json.decode(text, type=dict[str, _Made])
    except limits.DAMAGE as error:
        why = f"The description of its layers is damaged: {error}."
        raise InputError(
            f"{path} contains no quantized model.", why, "Quantize the model again, and save it."
        ) from error


def _layer_named(model: "nn.Module", name: str, path: str) -> "nn.Module":
    """Return a linear layer of the model. Raises InputError if it has none of this name."""
    layer = dict(model.named_modules(remove_duplicate=False)).get(name)
    if layer is None or type(layer).__name__ not in LINEAR:
        why = "It is missing." if layer is None else f"It is a {type(layer).__name__}."
        raise InputError(f"{path} belongs to another model: {name} is not a linear layer here.", why, _SAME)
    return layer
