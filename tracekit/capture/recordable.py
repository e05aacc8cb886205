"""Refuses ops that no GPU runs, or that have no shape to model."""

from typing import Any

import torch

from tracekit.analyzers.errors import InputError

_OF_CPUS = ("fbgemm", "mkldnn", "mkl", "onednn", "prepacked", "quantized", "sparse")
"""Namespaces of ops that PyTorch has only for CPUs."""
_PLACES = {"cpu", "meta"}


def check_is_op(func: Any) -> None:
    """Raise InputError for a higher-order function, such as flex_attention and cond, which is not an op."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        raise InputError(
            f"{func.name()} cannot be modelled.",
            "torch.compile generates its kernel, whose cost is unknown.",
            "Use scaled_dot_product_attention in its place, or model the run without the function.",
        )


def check(func: Any, tensors: list[torch.Tensor]) -> None:
    """Raise InputError for an op that cannot be modelled on a GPU."""
    if func.namespace in _OF_CPUS or any(tensor.is_mkldnn for tensor in tensors):
        raise InputError(
            f"{func._schema.name} cannot be modelled.",
            "PyTorch has this op for CPUs only.",
            "Run the model without it; int8 on a GPU is predicted by `tracekit predict --apply int8-dynamic`.",
        )
    elsewhere = {tensor.device.type for tensor in tensors} - _PLACES
    if elsewhere:
        raise InputError(
            f"{func._schema.name} on {elsewhere.pop()} cannot be modelled.",
            "All tensors of a recorded step are on the CPU, and stand for those of a GPU.",
            "Create its tensors in the step, by functions of torch, or load them with map_location='cpu'.",
        )
    if any(tensor.is_nested and tensor.layout is torch.strided for tensor in tensors):
        raise InputError(
            f"{func._schema.name} of nested tensors cannot be modelled.",
            "Nested tensors of this layout have no shape.",
            "Make them with layout=torch.jagged, and pad the inputs of attention.",
        )
