"""Describes one distinct op call by its tensors, for a recording."""

from collections.abc import Iterable
from typing import Any

import torch

from tracekit.capture.cuda_ops import launches
from tracekit.capture.op_signature import TENSOR_TYPES, Signature
from tracekit.capture.recording import Copies, OpCall
from tracekit.capture.storages import bytes_of, elements_of


def op_call(
    func: Any, key: Signature, inputs: list[torch.Tensor], outputs: list[torch.Tensor], copies: Copies = ""
) -> OpCall:
    """Return the description of a call."""
    return OpCall(
        name=key.name,
        shapes=key.shapes,
        dtypes=key.dtypes,
        strides=key.strides,
        values=key.values,
        launches=launches(func, inputs, outputs),
        copies=copies,
        element_type=element_type(inputs or outputs),
        read_bytes=_bytes(inputs),
        write_bytes=_bytes(outputs),
        elements=sum(elements_of(tensor) for tensor in outputs or inputs),
    )


def element_type(tensors: list[torch.Tensor]) -> str:
    """Return the profiler's name of the first tensor's type; "" without tensors."""
    return TENSOR_TYPES[tensors[0].dtype] if tensors else ""


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among `values`, including those in lists."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(item for item in value if isinstance(item, torch.Tensor))
    return tensors


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(bytes_of(tensor) for tensor in tensors)
