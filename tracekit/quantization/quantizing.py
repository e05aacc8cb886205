"""`tracekit.quantize`, and saving and loading what it returns."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tracekit.analyzers.core import Count, InputError, TracekitError, limits
from tracekit.analyzers.predict import HEADS
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


Format = Literal["int4", "int8", "nf4", "awq", "smoothquant"]
_Made = tuple[Format, Count, bool]
"""Format, group and whether there is an adapter."""


@dataclass(frozen=True)
class _Kind:
    """What a format of our own is."""

    bits: int
    calibrated: bool = False
    activations: bool = False
    """Whether inputs are quantized, too."""


_KINDS = {
    "int4": _Kind(4),
    "int8": _Kind(8),
    "awq": _Kind(4, calibrated=True),
    "smoothquant": _Kind(8, calibrated=True, activations=True),
}
_TYPES = {"float32", "float16", "bfloat16"}
SMALLEST_GROUP = 32
"""Inputs that a thread of the kernel reads at a time: groups are multiples of it."""
_LINEAR = ("Linear", "Conv1D", "FakeQuantizedLinear")
_SAME = "Load it into a new instance of the original model, which load quantizes."
_METADATA = "tracekit packed weights, 4"
"""Identifies the description of layers in a file, and the order in which weights are packed. It changes with the order
or the description."""


def quantize(
    model: "nn.Module",
    to: Format,
    *,
    group_size: int = 64,
    trainable: Literal[False, True, "lora"] = False,
    calibration: Iterable[Any] = (),
) -> "nn.Module":
    """Replace the model's linear layers, except its head, with layers of 4-bit or 8-bit weights, and return the model.

    Each group of `group_size` inputs has its own scale; the number of a layer's inputs, such as 768, is one scale an
    output. nf4 uses the layers of bitsandbytes, with their groups. awq is int4, and smoothquant int8 for weights and
    inputs, with factors from `calibration`: inputs of the model, or mappings of its keyword arguments. Layers whose
    inputs are not a multiple of the group, and those that calibration does not run, are unchanged.

    With trainable="lora", only a low-rank adapter beside each layer trains. With trainable=True, int4 and int8 weights
    are rounded at each step and train; quantize again, without it, packs them. Raises InputError if no layer can be
    quantized.
    """
    _check(model, to, group_size, trainable)
    layers = [each for each in _layers(model) if to in ("nf4", "smoothquant") or _inputs(each[2]) % group_size == 0]
    if not layers:
        raise InputError("Nothing can be quantized.", *_why_nothing(model, group_size))
    _check_types([layer for _, _, layer in layers])
    factors = _factors(model, to, group_size, [layer for _, _, layer in layers], calibration)
    if trainable == "lora":
        model.requires_grad_(False)
    made: dict[nn.Module, nn.Module] = {}
    for parent, name, layer in layers:
        if factors is not None and layer not in factors:
            continue
        if layer not in made:  # layers that share weights still share them
            factor = factors[layer] if factors is not None else None
            made[layer] = (
                _trained(layer, to, group_size)
                if trainable is True
                else _quantized(layer, to, group_size, bool(trainable), factor)
            )
        setattr(parent, name, made[layer])
    return model


def _factors(model: Any, to: str, group: int, layers: list[Any], calibration: Iterable[Any]) -> Any:
    """Return the factor of each layer that calibration runs; None for a format without calibration."""
    if to not in _KINDS or not _KINDS[to].calibrated:
        return None
    from tracekit.quantization import calibration as calibrating

    seen = calibrating.observe(model, layers, calibration)
    if not seen:
        why = "Calibration ran none of its linear layers."
        raise InputError(f"{to} needs inputs to calibrate with.", why, "Give calibration=[inputs of the model, ...].")
    return {
        layer: calibrating.factors(_rows(layer), observed, to, _KINDS[to].bits, group)  # type: ignore[arg-type]
        for layer, observed in seen.items()
    }


def _check(model: Any, to: str, group_size: int, trainable: Any) -> None:
    """Raise InputError for arguments that do not fit together."""
    if not isinstance(model, require("torch.nn").Module):
        why = f"It is a {type(model).__name__}."
        raise InputError("quantize takes a torch.nn.Module.", why, "Build the model first, then quantize it.")
    if to not in get_args(Format):
        there = f"There are {', '.join(get_args(Format))}."
        raise InputError(f"{to!r} is not a format.", there, "Write: tracekit.quantize(model, 'int4').")
    if trainable not in (False, "lora") and (trainable is not True or to not in ("int4", "int8")):
        why = "Only weights in int4 and int8 train; adapters beside any format do."
        raise InputError(f"trainable={trainable!r} is not possible.", why, "Write: trainable='lora', or leave it out.")
    if not isinstance(group_size, int) or group_size < SMALLEST_GROUP or group_size % SMALLEST_GROUP:
        why = f"It must be a multiple of {SMALLEST_GROUP}."
        raise InputError(f"A group of {group_size} is not possible.", why, "Try 64 or 128, or the number of inputs.")


def _check_types(layers: "list[nn.Module]") -> None:
    types = {str(layer.get_parameter("weight").dtype).removeprefix("torch.") for layer in layers}
    if not types <= _TYPES:
        why = f"Its linear layers have weights of {', '.join(sorted(types - _TYPES))}."
        raise InputError("The model's type is not supported.", why, "Convert it first: model.half(), or model.float().")


def _why_nothing(model: "nn.Module", group_size: int) -> tuple[str, str]:
    """Return why no layer can be quantized, and what to try."""
    inputs = sorted({_inputs(layer) for _, _, layer in _layers(model)})
    if inputs:
        counts = ", ".join(map(str, inputs[:4]))
        smaller = [size for size in (128, 64, 32) if size < group_size and any(each % size == 0 for each in inputs)]
        advice = f"Try group_size={smaller[0]}." if smaller else f"Inputs must be a multiple of {SMALLEST_GROUP}."
        return f"Its linear layers have {counts} inputs, which are not multiples of a group of {group_size}.", advice
    if type(model).__name__ in _LINEAR:
        return "It is itself a linear layer, and layers inside a model are replaced.", "Put it into an nn.Sequential."
    if any(type(each).__name__ == "WeightOnlyLinear" for each in model.modules()):
        return "Its linear layers are quantized already.", "Build the model again to choose another format."
    return "It has no nn.Linear other than its head.", "Convolutions and embeddings are not quantized."


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
        if to not in ("nf4", "smoothquant") and (not group or group % SMALLEST_GROUP or _inputs(layers[name]) % group):
            why = f"{name} has {_inputs(layers[name])} inputs, which do not form groups of {group}."
            raise InputError(f"{path} belongs to another model.", why, _SAME)
    if any(adapted for *_, adapted in wanted.values()):
        model.requires_grad_(False)
    made: dict[nn.Module, nn.Module] = {}
    for name, (to, group, adapted) in wanted.items():
        parent, _, leaf = name.rpartition(".")
        if layers[name] not in made:
            made[layers[name]] = _quantized(layers[name], to, group, adapted)
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
    if layer is None or type(layer).__name__ not in _LINEAR:
        why = "It is missing." if layer is None else f"It is a {type(layer).__name__}."
        raise InputError(f"{path} belongs to another model: {name} is not a linear layer here.", why, _SAME)
    return layer


def _layers(model: "nn.Module") -> Iterator[tuple["nn.Module", str, "nn.Module"]]:
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):  # named_children leaves out a layer that occurs twice
            if layer is not None and type(layer).__name__ in _LINEAR and name not in HEADS:
                yield parent, name, layer


def _rows(layer: "nn.Module") -> Any:
    """Return the weights as (outputs, inputs); GPT-2's Conv1D stores the transpose."""
    weight = layer.get_parameter("weight").detach()
    return weight.t().contiguous() if type(layer).__name__ == "Conv1D" else weight


def _inputs(layer: "nn.Module") -> int:
    return int(_rows(layer).shape[1])


def _quantized(layer: "nn.Module", to: str, group: int, adapted: bool, factor: Any = None) -> "nn.Module":
    """Return the layer in a format. Without a factor, a calibrated format has factors of one, which a file replaces."""
    from tracekit.quantization import layers, nf4

    weight, kind = _rows(layer), _KINDS.get(to)
    if kind and kind.calibrated and factor is None:
        factor = weight.new_ones(weight.shape[1]).float()
    if kind is None:
        made = nf4.nf4_linear(weight, layer.bias)
    elif kind.activations:
        made = layers.EightBitLinear(weight, layer.bias, factor)
    else:
        made = layers.WeightOnlyLinear.of(weight, layer.bias, kind.bits, group, factor)
    return layers.with_adapter(made, weight) if adapted else made


def _trained(layer: "nn.Module", to: str, group: int) -> "nn.Module":
    from tracekit.quantization.layers import FakeQuantizedLinear

    return FakeQuantizedLinear(_rows(layer), layer.bias, _KINDS[to].bits, group)
