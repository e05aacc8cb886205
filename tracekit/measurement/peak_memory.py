"""Peak device memory of a step, without what another subject beside it holds."""

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
    """The most that is allocated on the device while the step runs; 0 without a GPU."""
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
    """The most that was allocated since that was last reset: recording a graph resets it. 0 without a GPU."""
    cuda = require("torch.cuda")
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else 0


def allocated_bytes() -> int:
    """Device memory that is in use now; 0 without a GPU."""
    cuda = require("torch.cuda")
    if not cuda.is_initialized():
        return 0
    gc.collect()
    _forget_workspaces()
    return int(cuda.memory_allocated())


def _forget_workspaces() -> None:
    """cuBLAS keeps what it worked in: a step takes it again, and it is counted for that step."""
    require("torch")._C._cuda_clearCublasWorkspaces()


def release() -> None:
    """Give back to the device what nothing uses any more."""
    gc.collect()
    cuda = require("torch.cuda")
    if cuda.is_initialized():
        cuda.empty_cache()


def shared_bytes(subject: Subject, other: Subject) -> int:
    """Bytes of weights that both have, in the same memory."""
    theirs = {each.data_ptr() for each in _storages(other.model)}
    mine = {each.data_ptr(): each.nbytes() for each in _storages(subject.model)}
    return sum(size for pointer, size in mine.items() if pointer in theirs)


def _storages(model: "nn.Module") -> Iterator[Any]:
    for tensor in [*model.parameters(), *model.buffers()]:
        for plain in _plain(tensor):
            yield plain.untyped_storage()


def _plain(tensor: Any) -> Iterator[Any]:
    """The plain tensors that a tensor is made of: quantized ones keep values and scales apart."""
    state = getattr(tensor, "quant_state", None)
    if state is not None:
        yield state.absmax
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
    else:
        yield tensor
