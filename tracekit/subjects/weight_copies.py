"""Copies models with shared or converted weights, without unnecessary copies in memory."""

import copy
from typing import TYPE_CHECKING, Any

from tracekit.capture.packages import require

if TYPE_CHECKING:
    from torch import nn


def twin(model: "nn.Module", *, share: bool) -> "nn.Module":
    """Return a copy of the model's modules, whose parameters and buffers are shared if `share`, else copied."""
    if not share:
        return copy.deepcopy(model)
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def converted(model: "nn.Module", dtype: Any) -> "nn.Module":
    """Return a copy of the model with floating-point weights in `dtype`, as if it had been loaded in that dtype.

    Buffers of transformers' models that are not stored, such as rotary frequencies, stay in fp32, because transformers
    computes them in fp32 for weights of any dtype.
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
    result = copy.deepcopy(model, memo)
    if _is_of_transformers(result):
        result.config.dtype = dtype
    return result


def _is_of_transformers(model: "nn.Module") -> bool:
    return type(model).__module__.startswith("transformers.")


def _not_stored(model: "nn.Module") -> set[str]:
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
