"""Makes torch functions take the code path of a GPU, on a machine without one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from tracekit.capture.annotate import Emitter
from tracekit.capture.cpu_recorder import Placement
from tracekit.capture.cuda_attention import AttentionChoice
from tracekit.capture.cuda_functions import CudaFunctions, on_cpu
from tracekit.capture.cuda_stand_ins import stand_ins
from tracekit.capture.nvtx_calls import nvtx_ranges
from tracekit.capture.op_recorder import OpRecorder

_MOVES = (torch.Tensor.to, torch.Tensor.cuda)


class CpuFunctions(CudaFunctions):
    """Makes calls on real tensors take the CUDA path, and notes which of them name a device."""

    def __init__(self, attention: AttentionChoice, placement: Placement, recorder: OpRecorder) -> None:
        super().__init__(attention, placement, recorder)
        self._placement = placement
        self._paths |= {torch.tensor: self._tensor, torch.Tensor.pin_memory: _same}
        self._paths.pop(functional.softmax)  # only CUDA has the softmax that reads fp16 and writes fp32

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = (kwargs or {}).get("device") is not None or (func in _MOVES and _names_device(func, args))
        with self._placement.naming_device(named):
            return super().__torch_function__(func, types, args, kwargs)

    def _tensor(self, data: Any, **options: Any) -> torch.Tensor:
        made = torch.tensor(data, **options)
        if made.numel() and not self._placement.device_named:
            self._placement.add(made)
        return made


def _names_device(func: Any, args: tuple[Any, ...]) -> bool:
    return func is torch.Tensor.cuda or isinstance(args[1] if len(args) > 1 else None, (str, torch.device))


def _same(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


@contextmanager
def as_on_a_gpu(emitter: Emitter, name: str) -> Iterator[set[object]]:
    """Give torch the defaults of a machine with a GPU of this name, and yield the set of compiled functions that ran.

    Optimizers update all parameters at once, modules run uncompiled, and CUDA's autocast, events, synchronization and
    NVTX ranges work without CUDA.
    """
    optimizer, autocast = import_module("torch.optim.optimizer"), torch.amp.autocast_mode.autocast
    foreach, enter = ["cpu", *optimizer._get_foreach_kernels_supported_devices()], autocast.__init__

    def entered(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **options: Any) -> None:
        enter(self, on_cpu(device_type), dtype or torch.get_autocast_dtype(device_type), *args, **options)

    replaced: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (optimizer, "_get_foreach_kernels_supported_devices", lambda: foreach),
        (autocast, "__init__", entered),
        (torch.backends.mha, "get_fastpath_enabled", lambda: False),
        *stand_ins(name),
    )
    contexts = [patch.object(holder, name, new) for holder, name, new in replaced]
    with ExitStack() as stack:
        for context in (*contexts, nvtx_ranges(emitter), torch.compiler.set_stance("force_eager")):
            stack.enter_context(context)
        yield stack.enter_context(_compiled_functions())


@contextmanager
def _compiled_functions() -> Iterator[set[object]]:
    """Yield the set of the callbacks of torch.compile that calls in the block would have used. It stays empty where
    torch has no such function."""
    frames, called = import_module("torch._dynamo.eval_frame"), set[object]()
    chosen = getattr(frames, "_callback_from_stance", None)

    def noted(callback: object) -> object:
        if callable(callback):
            called.add(callback)
        return chosen(callback)  # type: ignore[misc]

    with patch.object(frames, "_callback_from_stance", noted) if chosen else nullcontext():
        yield called
