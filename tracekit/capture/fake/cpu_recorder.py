"""Records what a program computes on the CPU, as it would run on a GPU.

On a machine without a GPU, a program rarely names the device of its tensors. Tensors that it creates outside its
modules without naming a device stay on the host, with ops that only fill or rearrange them, such as initial weights and
batches. Ops that compute run on the GPU; their inputs are copied there once.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tracekit.capture.fake.cuda_calls import AttentionChoice
from tracekit.capture.fake.cuda_ops import aten, check
from tracekit.capture.fake.op_calls import storages, tensors_in
from tracekit.capture.fake.op_recorder import OpRecorder
from tracekit.capture.fake.recording import Copies
from tracekit.capture.fake.tensors import HostTensors

_REARRANGES = {
    *("aten::_to_copy", "aten::cat", "aten::clone", "aten::copy", "aten::detach", "aten::gather", "aten::index"),
    *("aten::index_select", "aten::lift_fresh", "aten::masked_select", "aten::repeat", "aten::roll", "aten::stack"),
    *("aten::tril", "aten::triu", "aten::_local_scalar_dense", "aten::equal", "aten::constant_pad_nd"),
}
OPTIMIZER = "Optimizer.step#"
"""Prefix of the range that torch.optim records around an update."""


class Placement(HostTensors):
    """Tracks which tensors are on the host, by their storage, and whether the program is inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self._on_host: set[int] = set()
        self._modules = 0
        self._device_named = False
        self.in_optimizer = False
        """Whether an optimizer of torch is updating weights. Its step counters stay on the CPU."""

    def add(self, tensor: torch.Tensor) -> None:
        for storage in storages(tensor):
            if storage._cdata not in self._on_host:
                self._on_host.add(storage._cdata)
                weakref.finalize(storage, self._on_host.discard, storage._cdata)

    def discard(self, tensor: torch.Tensor) -> None:
        self._on_host.difference_update(each._cdata for each in storages(tensor))

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return all(each._cdata in self._on_host for each in storages(tensor))

    @contextmanager
    def naming_device(self, named: bool) -> Iterator[None]:
        """Note, for the duration of a function call, whether it names a device."""
        before, self._device_named = self._device_named, named
        try:
            yield
        finally:
            self._device_named = before

    @property
    def device_named(self) -> bool:
        """Whether the current function call names a device."""
        return self._device_named and not self.in_optimizer

    def enter_module(self) -> None:
        self._modules += 1

    def leave_module(self) -> None:
        self._modules -= 1

    def is_on_host(self, func: Any, inputs: list[torch.Tensor]) -> bool:
        """Return whether an op of the program runs on the host."""
        if self._modules or self.device_named or torch._C._current_autograd_node() is not None:
            return False
        if any(tensor not in self for tensor in inputs):
            return False
        return not inputs or func.is_view or _prepares(func._schema.name)


def _prepares(name: str) -> bool:
    in_place = name.endswith("_") and not name.startswith("aten::_")
    return in_place or name.endswith("_like") or name in _REARRANGES


class CpuRecorder(OpRecorder):
    """Records the ops that are dispatched on real tensors while it is entered, without changing their results."""

    def __init__(self, attention: AttentionChoice, placement: Placement) -> None:
        super().__init__(attention, placement)
        self._placement = placement

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(each, "__tensor_flatten__") for each in types):
            return NotImplemented  # a tensor that wraps others: the ops on these are dispatched next
        return super().__torch_dispatch__(func, types, args, kwargs)

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Treat a model's tensors as resident in the GPU's memory."""
        tensors = list(tensors)
        self.memory.add(tensors)
        for tensor in tensors:
            self._placement.discard(tensor)

    def _record_function(self, func: Any, args: Any) -> None:
        super()._record_function(func, args)
        self._placement.in_optimizer = self._builder.is_open(OPTIMIZER)

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def _record(self, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> None:
        inputs = tensors_in((*args, *kwargs.values()))
        check(func, [*inputs, *outputs])
        if self._placement.is_on_host(func, inputs):
            for tensor in outputs:
                self._placement.add(tensor)
            return
        copies = self._copies(func, inputs)
        if copies != "to device":
            self._move(inputs)
        self.memory.add([*inputs, *outputs])
        self._append(func, args, kwargs, outputs, copies)

    def _copies(self, func: Any, inputs: list[torch.Tensor]) -> Copies:
        if func is aten._local_scalar_dense.default:
            return "" if inputs[0] in self._placement else "to host"
        return "to device" if func is aten._to_copy.default and inputs[0] in self._placement else ""

    def _move(self, inputs: list[torch.Tensor]) -> None:
        """Copy inputs to the device. Kernels take single numbers as arguments, without a copy."""
        for tensor in inputs:
            if tensor in self._placement and tensor.dim():
                self._placement.discard(tensor)
                self._append(aten._to_copy.default, (tensor,), {}, [tensor], "to device")
