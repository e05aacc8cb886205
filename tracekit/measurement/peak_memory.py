"""Measures the peak device memory of a step, without the memory of other subjects in the process."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracekit.capture.annotate import NoRanges
from tracekit.capture.packages import require
from tracekit.capture.workloads import Step
from tracekit.subjects.subject import Subject

if TYPE_CHECKING:
    from torch import nn


def peak_bytes(step: Step) -> int:
    """Run the step, and return the peak of allocated device memory in bytes; 0 without a GPU."""
    cuda = require("torch.cuda")
    if not cuda.is_initialized():
        return 0
    cuda.synchronize()
    _forget_workspaces()
    cuda.reset_peak_memory_stats()
    step(NoRanges())
    cuda.synchronize()
    return peak_so_far()


def peak_so_far() -> int:
    """Return the peak of allocated device memory since its last reset, in bytes; 0 without a GPU.

    Capturing a CUDA graph resets it.
    """
    cuda = require("torch.cuda")
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else 0


def allocated_bytes() -> int:
    """Return the allocated device memory in bytes; 0 without a GPU."""
    cuda = require("torch.cuda")
    if not cuda.is_initialized():
        return 0
    gc.collect()
    _forget_workspaces()
    return int(cuda.memory_allocated())


def _forget_workspaces() -> None:
    """Free the workspaces that cuBLAS keeps. The next step allocates them again, so they count for that step."""
    require("torch")._C._cuda_clearCublasWorkspaces()


def release() -> None:
    """Return unused cached memory to the device."""
    gc.collect()
    cuda = require("torch.cuda")
    if cuda.is_initialized():
        cuda.empty_cache()


def shared_bytes(subject: Subject, other: Subject) -> int:
    """Return the bytes of the weights whose memory both subjects share."""
    theirs = {each.data_ptr() for each in _storages(other.model)}
    mine = {each.data_ptr(): each.nbytes() for each in _storages(subject.model)}
    return sum(size for pointer, size in mine.items() if pointer in theirs)


def _storages(model: "nn.Module") -> Iterator[Any]:
    for tensor in [*model.parameters(), *model.buffers()]:
        for plain in _plain(tensor):
            yield plain.untyped_storage()


def _plain(tensor: Any) -> Iterator[Any]:
    """Yield the plain tensors inside a tensor; quantized tensors store values and scales separately."""
    state = getattr(tensor, "quant_state", None)
    if state is not None:
        yield state.absmax
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
    else:
        yield tensor
