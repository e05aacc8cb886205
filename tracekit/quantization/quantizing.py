"""`tracekit.quantize`: narrow formats in place of a model's linear layers, for inference, adapters, or training."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tracekit.analyzers.core import InputError
from tracekit.analyzers.predict import HEADS
from tracekit.capture import WeightFormat
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


Format = WeightFormat
CHANNEL: Literal["channel"] = "channel"
"""The group of all inputs of an output: one scale for each output."""
Group = int | Literal["channel"]


class _Kind(msgspec.Struct, frozen=True):
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
WITHOUT_GROUPS = ("nf4", "smoothquant", "none")
"""Formats whose groups are not chosen."""
LINEAR = ("Linear", "Conv1D", "FakeQuantizedLinear")


def quantize(
    model: "nn.Module",
    to: Format,
    *,
    group_size: Group = 64,
    trainable: Literal[False, True, "lora"] = False,
    calibration: Iterable[Any] = (),
) -> "nn.Module":
    """Replace the model's linear layers, except its head, with layers of 4-bit or 8-bit weights, and return the model.

    Each group of `group_size` inputs has its own scale, or each output ("channel"). nf4 uses the layers of
    bitsandbytes, with their groups. awq is int4, and smoothquant int8 for weights and inputs, with factors from
    `calibration`: inputs of the model, or mappings of its keyword arguments. Layers whose inputs are not a multiple of
    the group, and those that calibration does not run, are unchanged.

    With trainable="lora", only a low-rank adapter beside each layer trains ("none": beside the layers as they are).
    With trainable=True, weights train as if they were in the format (the gradient ignores the rounding); quantize
    again, without it, packs them, with the same factors. Raises InputError if no layer can be quantized.
    """
    _check(model, to, group_size, trainable)
    layers = [
        each for each in _layers(model) if to in WITHOUT_GROUPS or inputs_of(each[2]) % _group(each[2], group_size) == 0
    ]
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
            factor, group = factors[layer] if factors is not None else None, _group(layer, group_size)
            made[layer] = (
                _trained(layer, to, group, factor)
                if trainable is True
                else quantized_layer(layer, to, group, bool(trainable), factor)
            )
        setattr(parent, name, made[layer])
    return model


def _factors(model: Any, to: str, group: Group, layers: list[Any], calibration: Iterable[Any]) -> Any:
    """Return the factor of each layer that calibration runs, or with which it was trained; None for a format without
    calibration."""
    if to not in _KINDS or not _KINDS[to].calibrated:
        return None
    from tracekit.quantization import calibration as calibrating

    trained = {each: each.factor for each in layers if getattr(each, "format", "") == to}
    left = [each for each in layers if each not in trained]
    seen = calibrating.observe(model, left, calibration) if left else {}
    if not seen and not trained:
        why = "Calibration ran none of its linear layers."
        raise InputError(f"{to} needs inputs to calibrate with.", why, "Give calibration=[inputs of the model, ...].")

    def factors(layer: Any, observed: Any) -> Any:
        if to == "smoothquant":
            return calibrating.smoothquant_factors(_rows(layer), observed)
        return calibrating.awq_factors(_rows(layer), observed, _KINDS[to].bits, _group(layer, group))

    return trained | {layer: factors(layer, observed) for layer, observed in seen.items()}


def _group(layer: "nn.Module", group: Group) -> int:
    """Return how many inputs share a scale: at least SMALLEST_GROUP, of which a layer may not have a multiple."""
    if group != CHANNEL:
        return int(group)
    return inputs_of(layer) if inputs_of(layer) % SMALLEST_GROUP == 0 else inputs_of(layer) + 1


def _check(model: Any, to: str, group_size: Any, trainable: Any) -> None:
    """Raise InputError for arguments that do not fit together."""
    if not isinstance(model, require("torch.nn").Module):
        why = f"It is a {type(model).__name__}."
        raise InputError("quantize takes a torch.nn.Module.", why, "Build the model first, then quantize it.")
    if to not in get_args(Format):
        there = f"There are {', '.join(get_args(Format))}."
        raise InputError(f"{to!r} is not a format.", there, "Write: tracekit.quantize(model, 'int4').")
    if trainable not in (False, True, "lora"):
        why = "There are adapters ('lora') and the weights themselves (True)."
        raise InputError(f"trainable={trainable!r} is not possible.", why, "Write: trainable='lora', or leave it out.")
    if to == "none" and trainable != "lora":
        raise InputError("'none' changes nothing.", "It is for adapters alone.", "Add trainable='lora'.")
    if group_size != CHANNEL and (
        not isinstance(group_size, int) or group_size < SMALLEST_GROUP or group_size % SMALLEST_GROUP
    ):
        why = f"It must be a multiple of {SMALLEST_GROUP}."
        raise InputError(f"A group of {group_size} is not possible.", why, "Try 64 or 128, or 'channel'.")


def _check_types(layers: "list[nn.Module]") -> None:
    types = {str(layer.get_parameter("weight").dtype).removeprefix("torch.") for layer in layers}
    if not types <= _TYPES:
        why = f"Its linear layers have weights of {', '.join(sorted(types - _TYPES))}."
        raise InputError("The model's type is not supported.", why, "Convert it first: model.half(), or model.float().")


def _why_nothing(model: "nn.Module", group_size: Group) -> tuple[str, str]:
    """Return why no layer can be quantized, and what to try."""
    inputs = sorted({inputs_of(layer) for _, _, layer in _layers(model)})
    if inputs:
        counts = ", ".join(map(str, inputs[:4]))
        most = SMALLEST_GROUP if group_size == CHANNEL else int(group_size)
        smaller = [size for size in (128, 64, 32) if size < most and any(each % size == 0 for each in inputs)]
        advice = f"Try group_size={smaller[0]}." if smaller else f"Inputs must be a multiple of {SMALLEST_GROUP}."
        what = SMALLEST_GROUP if group_size == CHANNEL else f"a group of {group_size}"
        return f"Its linear layers have {counts} inputs, which are not multiples of {what}.", advice
    if type(model).__name__ in LINEAR:
        return "It is itself a linear layer, and layers inside a model are replaced.", "Put it into an nn.Sequential."
    if any(type(each).__name__ == "WeightOnlyLinear" for each in model.modules()):
        return "Its linear layers are quantized already.", "Build the model again to choose another format."
    return "It has no nn.Linear other than its head.", "Convolutions and embeddings are not quantized."


def _layers(model: "nn.Module") -> Iterator[tuple["nn.Module", str, "nn.Module"]]:
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):  # named_children leaves out a layer that occurs twice
            if layer is not None and type(layer).__name__ in LINEAR and name not in HEADS:
                yield parent, name, layer


def _rows(layer: "nn.Module") -> Any:
    """Return the weights as (outputs, inputs); GPT-2's Conv1D stores the transpose."""
    weight = layer.get_parameter("weight").detach()
    return weight.t().contiguous() if type(layer).__name__ == "Conv1D" else weight


def inputs_of(layer: "nn.Module") -> int:
    return int(_rows(layer).shape[1])


def quantized_layer(layer: "nn.Module", to: str, group: int, adapted: bool, factor: Any = None) -> "nn.Module":
    """Return the layer in a format. Without a factor, a calibrated format has factors of one, which a file replaces."""
    from tracekit.quantization import layers, nf4

    weight, kind = _rows(layer), _KINDS.get(to)
    if kind and kind.calibrated and factor is None:
        factor = weight.new_ones(weight.shape[1]).float()
    if to == "none":
        made = layer
    elif kind is None:
        made = nf4.nf4_linear(weight, layer.bias)
    elif kind.activations:
        made = layers.EightBitLinear(weight, layer.bias, factor)
    else:
        made = layers.WeightOnlyLinear.of(weight, layer.bias, kind.bits, group, factor)
    return layers.with_adapter(made, weight) if adapted else made


def _trained(layer: "nn.Module", to: Format, group: int, factor: Any) -> "nn.Module":
    """Return a layer of trainable weights, which computes what the packed layer would."""
    from tracekit.quantization import layers, nf4

    weight, kind = _rows(layer), _KINDS.get(to)
    if kind is None:
        return layers.FakeQuantizedLinear(weight, layer.bias, to, nf4.rounded)
    rounded = partial(layers.rounded, bits=kind.bits, group=0 if kind.activations else group, factor=factor)
    return layers.FakeQuantizedLinear(weight, layer.bias, to, rounded, factor, kind.activations)
