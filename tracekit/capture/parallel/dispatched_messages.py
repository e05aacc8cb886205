"""Finds the messages of collectives that torch dispatches as ops, and the bytes that FSDP copies around them."""

from typing import Any

import torch

from tracekit.analyzers.costs.messages import Kind, Message
from tracekit.capture.op_calls import tensors_in

_KINDS: dict[str, Kind] = {
    "c10d::allreduce_": "all-reduce",
    "c10d::_allgather_base_": "all-gather",
    "c10d::_reduce_scatter_base_": "reduce-scatter",
    "_c10d_functional::all_reduce": "all-reduce",
    "_c10d_functional::all_gather_into_tensor": "all-gather",
    "_c10d_functional::reduce_scatter_tensor": "reduce-scatter",
}


class Communicated:
    """The collectives whose results lie in each storage."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}

    def add(self, tensors: list[torch.Tensor], slot: int) -> None:
        for tensor in tensors:
            self._slots[tensor.untyped_storage()._cdata] = slot

    def latest(self, tensors: list[torch.Tensor]) -> int:
        """Return the slot of the latest collective whose result one of the tensors holds; -1: none."""
        if not self._slots:
            return -1
        return max((self._slots.get(each.untyped_storage()._cdata, -1) for each in tensors), default=-1)


def message_of(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Message | None:
    """Return the message of a collective among all ranks; None for other ops."""
    kind = _KINDS.get(func._schema.name)
    if kind is None:
        return None
    sizes = [sum(each.nbytes for each in tensors) for tensors in (tensors_in(args), outputs)]
    buffers = max(sizes) if "functional" in func.namespace else max(each.nbytes for each in tensors_in(args))
    return Message(kind, buffers, torch.distributed.get_world_size())


def copies_of_fsdp(func: Any, args: tuple[Any, ...]) -> list[torch.Tensor] | None:
    """Return the tensors that an op of FSDP copies, without the larger buffers; None for other ops."""
    return tensors_in(args[:1]) if func.namespace == "fsdp" else None


def is_split(types: Any) -> bool:
    """Return whether an op has tensors of several ranks. The ops on this rank's part are dispatched next."""
    return any(each.__name__ in ("DTensor", "AsyncCollectiveTensor") for each in types)
