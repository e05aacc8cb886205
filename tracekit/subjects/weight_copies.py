"""Copies of a model that share its weights, or hold them converted: never twice in memory without need."""

import copy
from typing import TYPE_CHECKING, Any

from tracekit.capture.packages import require

if TYPE_CHECKING:
    from torch import nn


def twin(model: "nn.Module", *, share: bool) -> "nn.Module":
    """The same modules anew, around the same parameters and buffers, or around copies of them."""
    if not share:
        return copy.deepcopy(model)
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def converted(model: "nn.Module", dtype: Any) -> "nn.Module":
    """The model with floating-point weights in `dtype`, as loading it in that type would give.

    transformers computes what it does not store (rotary frequencies) in fp32 whatever the type of the weights.
    """
    torch = require("torch")
    kept = _not_stored(model) if _is_of_transformers(model) else set()
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        data = parameter.detach().to(dtype if parameter.is_floating_point() else parameter.dtype, copy=True)
        memo[id(parameter)] = torch.nn.Parameter(data, parameter.requires_grad)
    for name, buffer in model.named_buffers():
        wanted = buffer.is_floating_point() and name not in kept
        memo[id(buffer)] = buffer.to(dtype) if wanted else buffer.clone()
    found = copy.deepcopy(model, memo)
    if _is_of_transformers(found):
        found.config.dtype = dtype
    return found


def _is_of_transformers(model: "nn.Module") -> bool:
    return type(model).__module__.startswith("transformers.")


def _not_stored(model: "nn.Module") -> set[str]:
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
