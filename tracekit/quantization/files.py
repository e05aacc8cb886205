"""Files of quantized models, as safetensors."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.capture import (
    NARROW,
    NarrowFile,
    NarrowLayer,
    WeightFormat,
    from_stored,
    in_groups,
    read_narrow,
    to_stored,
)
from tracekit.quantization.quantizing import LINEAR, SMALLEST_GROUP, WITHOUT_GROUPS, inputs_of, quantized_layer
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


_SAME = "Load it into a new instance of the original model, which load quantizes."
_GROUP = 64
"""Inputs of a scale in embeddings."""


def save(model: "nn.Module", path: str | Path, *, embeddings: bool = False) -> None:
    """Write a model that `quantize` returned, adapters included, as safetensors.

    With `embeddings`, these are rounded to 8 bits in the file, too, with a scale for 64 numbers.
    """
    named = list(model.named_modules(remove_duplicate=False))
    layers = {name: made for name, layer in named if (made := _made(layer)) is not None}
    if not layers:
        raise InputError(
            "The model has no quantized layers.", "", "Quantize it first: tracekit.quantize(model, 'int4')"
        )
    tensors, same = _distinct(model.state_dict())
    for name, layer in named:
        if f"{name}.packed" in tensors:
            tensors[f"{name}.packed"] = _stored(tensors[f"{name}.packed"], layer.bits)
        elif embeddings and type(layer).__name__ == "Embedding" and f"{name}.weight" in tensors:
            layers[name] = "int8", _GROUP, False
            tensors |= _table(name, tensors.pop(f"{name}.weight"))
    try:
        require("safetensors.torch").save_file(tensors, str(path), {NARROW: json.dumps(layers), **same})
    except (OSError, require("safetensors").SafetensorError) as error:
        raise TracekitError(f"{path} cannot be written.", f"{error}.") from error


def _distinct(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tensors without those that share memory with an earlier one, and the names of both."""
    tensors: dict[str, Any] = {}
    same: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, value in state.items():
        kept = first.setdefault((value.data_ptr(), value.shape) if value.numel() else name, name)
        if kept == name:
            tensors[name] = value.clone(memory_format=require("torch").contiguous_format)
        else:
            same[name] = kept
    return tensors, same


def _stored(packed: Any, bits: int) -> Any:
    from tracekit.quantization import layers

    return to_stored(layers.integers(packed, bits), bits)


def _table(name: str, weight: Any) -> dict[str, Any]:
    from tracekit.quantization import layers

    packed, scale = layers.pack(weight, 8, _GROUP)
    return {f"{name}.packed": _stored(packed, 8), f"{name}.scale": scale}


def _made(layer: "nn.Module") -> NarrowLayer | None:
    """Return what a quantized layer is made of; None for any other layer."""
    from tracekit.quantization.layers import EightBitLinear, WeightOnlyLinear

    adapted = hasattr(layer, "lora_a")
    if isinstance(layer, WeightOnlyLinear):
        group = layer.packed.shape[1] * 32 // layer.bits // layer.scale.shape[1]
        return ("awq" if layer.smooth is not None else "int4" if layer.bits == 4 else "int8"), group, adapted
    others: dict[str, WeightFormat] = {EightBitLinear.__name__: "smoothquant", "Linear4bit": "nf4"}
    others |= dict.fromkeys(LINEAR, "none") if adapted else {}
    return (others[type(layer).__name__], 0, adapted) if type(layer).__name__ in others else None


def load(model: "nn.Module", path: str | Path) -> "nn.Module":
    """Load a file that `save` wrote into a model of the same architecture that is not quantized, and return the
    model."""
    held = read_narrow(path)
    tables = {name for name in held.layers if _is_table(model, name)}
    _replace(model, {name: layer for name, layer in held.layers.items() if name not in tables}, path)
    try:
        model.load_state_dict(_state(held, tables))
    except (RuntimeError, KeyError, ValueError, IndexError) as error:
        raise InputError(f"{path} belongs to another model.", f"{error}"[:300], _SAME) from error
    return model


def _is_table(model: "nn.Module", name: str) -> bool:
    return type(dict(model.named_modules()).get(name)).__name__ == "Embedding"


def _replace(model: "nn.Module", wanted: Mapping[str, NarrowLayer], path: str | Path) -> None:
    """Put quantized layers into the place of linear ones; the file brings their weights."""
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


def _state(held: NarrowFile, tables: Iterable[str]) -> dict[str, Any]:
    """Return the tensors of a model whose layers are packed, except its tables."""
    from tracekit.quantization import layers

    state = dict(held.tensors)
    for name in tables:
        integers, scale = from_stored(state.pop(f"{name}.packed")), state.pop(f"{name}.scale")
        state[f"{name}.weight"] = in_groups(integers, scale.float())
    for name, value in state.items():
        if name.endswith(".packed"):
            state[name] = layers.words(from_stored(value), 8 if value.dtype == require("torch").int8 else 4)
    return state | {name: state[kept] for name, kept in held.same.items() if kept in state}


def _layer_named(model: "nn.Module", name: str, path: str) -> "nn.Module":
    """Return a linear layer of the model. Raises InputError if it has none of this name."""
    layer = dict(model.named_modules(remove_duplicate=False)).get(name)
    if layer is None or type(layer).__name__ not in LINEAR:
        why = "It is missing." if layer is None else f"It is a {type(layer).__name__}."
        raise InputError(f"{path} belongs to another model: {name} is not a linear layer here.", why, _SAME)
    return layer
