"""Files of weights in 4 or 8 bits, which tracekit.quantization writes, opened as ordinary weights.

A layer in groups is stored as `packed`, integers (outputs, inputs) in int8, or two of 4 bits in a byte of uint8, each 8
more than it is and the first in the lower half; and `scale`, (outputs, groups).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tracekit.analyzers.core import Count, InputError, limits
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


WeightFormat = Literal["int4", "int8", "nf4", "awq", "smoothquant", "none"]
NarrowLayer = tuple[WeightFormat, Count, bool]
"""Format, group and whether there is an adapter."""
NARROW = "tracekit weights, 5"
"""Identifies the description of layers in a file. It changes with the description, or with what is stored."""
_AGAIN = "Quantize the model again, and save it."


class NarrowFile(msgspec.Struct, frozen=True):
    """What a file holds."""

    layers: Mapping[str, NarrowLayer]
    """By the names of layers."""
    tensors: dict[str, Any]
    same: Mapping[str, str]
    """The names under which tensors are stored, by those of others that share their memory."""


def narrow_file_in(folder: Path) -> Path | None:
    """Return the first file of a folder that holds weights in 4 or 8 bits; None if there is none."""
    return next((path for path in sorted(folder.glob("*.safetensors")) if NARROW in _metadata(path)), None)


def read_narrow(path: str | Path) -> NarrowFile:
    """Read a file that `tracekit.quantization.save` wrote. Raises InputError for any other."""
    metadata = _metadata(path)
    what = f"{path} contains no quantized model."
    if NARROW not in metadata:
        raise InputError(what, "Only what this version of tracekit.quantize wrote can be read.", _AGAIN)
    try:
        layers = msgspec.json.decode(metadata.pop(NARROW), type=dict[str, NarrowLayer])
    except limits.DAMAGE as error:
        raise InputError(what, f"The description of its layers is damaged: {error}.", _AGAIN) from error
    tensors = require("safetensors.torch").load_file(str(path))
    return NarrowFile(layers, tensors, metadata)


def _metadata(path: str | Path) -> dict[str, str]:
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(str(path), framework="pt") as stored:
            return dict(stored.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} cannot be read.", f"{error}.", "Give a file that save wrote.") from error


def load_plain(model: "nn.Module", path: str | Path) -> "nn.Module":
    """Load a file of weights in 4 or 8 bits into a model that is not quantized, in the model's type, and return it.

    Adapters are added to the weights beside which they trained. Raises InputError if the model is another, or the
    weights are in nf4, whose layers are those of bitsandbytes.
    """
    held = read_narrow(path)
    modules = dict(model.named_modules(remove_duplicate=False))
    state = dict(held.tensors)
    nf4 = next((name for name, (to, *_) in held.layers.items() if to == "nf4"), None)
    if nf4 is not None:
        raise InputError(f"{nf4} is in nf4.", "Its layers are those of bitsandbytes.", "Load the file with load.")
    try:
        for name, (to, _, adapted) in held.layers.items():
            if f"{name}.scale" in state or adapted:
                state[f"{name}.weight"] = _plain(state, name, to, type(modules[name]).__name__ == "Conv1D")
        same = {_of_weight(name): _of_weight(kept) for name, kept in held.same.items()}
        model.load_state_dict(state | {name: state[kept] for name, kept in same.items() if kept in state})
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path} belongs to another model.", f"{error}"[:300], "Give its own config.json.") from error
    return model


def _of_weight(name: str) -> str:
    return name.removesuffix("packed") + "weight" if name.endswith(".packed") else name


def _plain(state: dict[str, Any], name: str, to: WeightFormat, transposed: bool) -> Any:
    """Take a layer's tensors out of the state, and return its weights in fp32."""
    names = ("weight", "packed", "scale", "smooth", "lora_a", "lora_b")
    weight, packed, *others = (state.pop(f"{name}.{part}", None) for part in names)
    scale, smooth, lora_a, lora_b = (None if each is None else each.float() for each in others)
    if packed is not None:
        rows = in_groups(from_stored(packed), scale)
    else:
        rows = weight.float() if scale is None else weight * scale[:, None]
        rows = rows.t() if transposed and to == "none" else rows
    rows = rows if smooth is None else rows * smooth
    rows = rows if lora_a is None else rows + lora_b @ lora_a
    return rows.t() if transposed else rows


def to_stored(integers: Any, bits: int) -> Any:
    """Return integers (outputs, inputs) of `bits` bits as they are stored."""
    torch = require("torch")
    if bits == 8:
        return integers.to(torch.int8)
    low, high = (integers + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(-1)
    return low | high << 4


def from_stored(packed: Any) -> Any:
    """Return the integers, (outputs, inputs) in int8."""
    torch = require("torch")
    if packed.dtype == torch.int8:
        return packed
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).to(torch.int8) - 8


def in_groups(integers: Any, scale: Any) -> Any:
    """Return (outputs, inputs) of integers times (outputs, groups) of scales, in the type of the scales."""
    parts = integers.to(scale.dtype).reshape(*scale.shape, -1)
    return (parts * scale.unsqueeze(-1)).flatten(1)
