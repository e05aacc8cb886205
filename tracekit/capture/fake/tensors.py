"""Restores properties that results lose on fake tensors.

A GEMM folds its batch depending on strides, and on whether its second factor is a parameter.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from tracekit.capture.fake.op_calls import storages

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)


def as_real(func: Any, args: tuple[Any, ...], result: Any, follows_query: bool) -> Any:
    """Return the result of `func` as CUDA does: in its layout, and with a transposed parameter that still needs a
    gradient.

    `follows_query` says that the result of an attention has the layout of its query.
    """
    if func is aten.t.default and args[0].requires_grad and torch.is_inference_mode_enabled():
        return result.requires_grad_()
    if func in _VIEWS:
        return _canonical(result)
    if func is aten._scaled_dot_product_flash_attention_for_cpu.default:
        out, log_sumexp = result
        order = _order(args[0]) if follows_query else (0, 2, 1, 3)
        return torch.empty_permuted(out.shape, order, dtype=out.dtype, device=out.device), log_sumexp
    return result


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions from the largest stride to the smallest."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def _canonical(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous view with the strides of its shape; on fake tensors, dimensions of size 1 have others."""
    if not tensor.is_contiguous():
        return tensor
    strides = [1]
    for size in reversed(tensor.shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    return tensor if list(tensor.stride()) == strides[: tensor.dim()] else tensor.as_strided(tensor.shape, strides)


class HostTensors:
    """Tracks the tensors that a program creates on the host, as opposed to those in a GPU's memory."""

    def __init__(self) -> None:
        self._made = WeakIdKeyDictionary()

    def add(self, tensor: torch.Tensor) -> None:
        self._made[tensor] = True

    def discard(self, tensor: torch.Tensor) -> None:
        self._made.pop(tensor, None)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor in self._made


class LiveMemory:
    """Sums the bytes of every storage seen until it is freed. A storage that several tensors share counts once."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._blocks = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.told: Callable[[int, int], None] = lambda _block, _size: None
        """Called with the number of a block and the bytes that it adds, negative when it is freed."""

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        for storage in (each for tensor in tensors for each in storages(tensor)):
            key = storage._cdata
            if key not in self._seen:
                self._blocks += 1
                self._seen[key] = self._blocks
                self.live_bytes += storage.nbytes()
                self.told(self._blocks, storage.nbytes())
                weakref.finalize(storage, self._free, key, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _free(self, key: int, size: int) -> None:
        block = self._seen.pop(key, 0)
        self.live_bytes -= size
        self.told(block, -size)


class FakeRates(TorchFunctionMode):
    """Makes the numbers of a fake tensor zero: models read rates of stochastic depth, which affect no shape."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.item and args[0].dtype.is_floating_point:
            return 0.0
        return func(*args, **(kwargs or {}))
