"""`tracekit.quantize`, and saving and loading what it returns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.transforms.linear_products import HEADS
from tracekit.capture.packages import require

if TYPE_CHECKING:
    from torch import nn

Format = Literal["int4", "int8", "nf4"]
_BITS = {"int4": 4, "int8": 8}
SMALLEST_GROUP = 32
"""Inputs of the smallest group: those that a thread of the kernel reads at a time."""
_LINEAR = ("Linear", "Conv1D")
_METADATA = "tracekit packed weights, 2"
"""Names the order in which weights are packed; another order has another number."""


def quantize(
    model: "nn.Module", to: Format, *, group_size: int = 64, trainable: Literal[False, "lora"] = False
) -> "nn.Module":
    """Put weights of 4 or 8 bits in place of the model's linear layers, except its head, and return the model.

    Each group of `group_size` inputs has a scale of its own. nf4 uses the layers of bitsandbytes. With
    trainable="lora", a low-rank adapter beside each layer trains, and nothing else does. Layers whose inputs are no
    multiple of the group stay as they are. Raises InputError if no layer can be quantized.
    """
    if to not in (*_BITS, "nf4") or trainable not in (False, "lora"):
        raise InputError(f"{to!r} is no format.", "There are int4, int8 and nf4; trainable is False or 'lora'.")
    if to == "nf4" and trainable:
        raise InputError("Adapters on nf4 are those of peft.", "", "Measure them with: verify --apply nf4")
    if group_size < SMALLEST_GROUP or group_size & (group_size - 1):
        why = f"It must be a power of two, and at least {SMALLEST_GROUP}."
        raise InputError(f"A group of {group_size} is not possible.", why, "Try 64 or 128.")
    layers = [each for each in _layers(model) if to == "nf4" or _inputs(each[2]) % group_size == 0]
    if not layers:
        raise InputError("Nothing can be quantized.", "No linear layer's inputs divide by the group.")
    if trainable:
        model.requires_grad_(False)
    for parent, name, layer in layers:
        setattr(parent, name, _quantized(layer, to, group_size, bool(trainable)))
    return model


def save(model: "nn.Module", path: str | Path) -> None:
    """Write a model that `quantize` returned with int4 or int8, adapters included, as safetensors."""
    from tracekit.quantization.quantized_linear import WeightOnlyLinear

    layers = {
        name: [layer.bits, layer.packed.shape[1] * 32 // layer.bits // layer.scale.shape[1], layer.lora_a is not None]
        for name, layer in model.named_modules()
        if isinstance(layer, WeightOnlyLinear)
    }
    if not layers:
        raise InputError("The model has no layers of int4 or int8.", "Those of nf4 are saved by bitsandbytes.")
    require("safetensors.torch").save_model(model, str(path), metadata={_METADATA: json.dumps(layers)})


def load(model: "nn.Module", path: str | Path) -> "nn.Module":
    """Put what `save` wrote into a model of the same architecture, which is not quantized, and return it."""
    with require("safetensors").safe_open(str(path), framework="pt") as stored:
        metadata = stored.metadata() or {}
    if _METADATA not in metadata:
        why = "Only what this version of tracekit.quantization.quantize.save wrote can be read."
        raise InputError(f"{path} holds no quantized model.", why, "Quantize the model again, and save it.")
    wanted: dict[str, tuple[int, int, bool]] = json.loads(metadata[_METADATA])
    for name, (bits, group, adapted) in wanted.items():
        parent_name, _, leaf = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        setattr(parent, leaf, _quantized(model.get_submodule(name), "int4" if bits == 4 else "int8", group, adapted))
    require("safetensors.torch").load_model(model, str(path))
    return model


def _layers(model: "nn.Module") -> Iterator[tuple["nn.Module", str, "nn.Module"]]:
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer).__name__ in _LINEAR and name not in HEADS:
                yield parent, name, layer


def _rows(layer: "nn.Module") -> Any:
    """Return the weights as (outputs, inputs); GPT-2's Conv1D stores the transpose."""
    weight = layer.get_parameter("weight").detach()
    return weight.t().contiguous() if type(layer).__name__ == "Conv1D" else weight


def _inputs(layer: "nn.Module") -> int:
    return int(_rows(layer).shape[1])


def _quantized(layer: "nn.Module", to: str, group: int, adapted: bool) -> "nn.Module":
    if to == "nf4":
        return _nf4(layer)
    from tracekit.quantization.quantized_linear import RANK, WeightOnlyLinear

    return WeightOnlyLinear.of(_rows(layer), layer.bias, _BITS[to], group, RANK if adapted else 0)


def _nf4(layer: "nn.Module") -> "nn.Module":
    modules, weight = require("bitsandbytes").nn, _rows(layer)
    options = {"bias": layer.bias is not None, "quant_type": "nf4", "compute_dtype": weight.dtype, "device": "meta"}
    new: nn.Module = modules.Linear4bit(weight.shape[1], weight.shape[0], **options)
    new.weight = modules.Params4bit(weight, requires_grad=False, quant_type="nf4", module=new)
    new.bias = layer.bias
    return new.to(weight.device)
