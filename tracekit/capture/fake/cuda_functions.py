"""Makes functions of torch.nn.functional that differ between the CPU and CUDA take the CUDA path."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, linear, scaled_dot_product_attention, softmax
from torch.overrides import TorchFunctionMode

from tracekit.capture.emitted_ranges import Emitter
from tracekit.capture.fake.cpu_recorder import Placement
from tracekit.capture.fake.cuda_calls import AttentionChoice, rms_norm
from tracekit.capture.fake.cuda_recurrent import recurrent_calls
from tracekit.capture.fake.op_recorder import OpRecorder
from tracekit.capture.fake.tensors import HostTensors
from tracekit.capture.wrapped_calls import nvtx_ranges


class CudaFunctions(TorchFunctionMode):
    """Makes calls on CPU tensors decompose as on CUDA, so that the recorded ops are those of a GPU.

    CUDA devices that the program names are the CPU, so that all tensors of a recording are in one place.
    """

    def __init__(self, attention: AttentionChoice, host_tensors: HostTensors, recorder: OpRecorder) -> None:
        super().__init__()
        self._choice, self._host_tensors = attention, host_tensors
        self._paths: dict[Any, Callable[..., Any]] = {
            scaled_dot_product_attention: self._attention,
            functional.multi_head_attention_forward: self._multi_head_attention,
            dropout: _dropout,
            functional.rms_norm: rms_norm,
            torch.rms_norm: rms_norm,
            softmax: _softmax,
            torch.tensor: self._tensor,
            torch.Tensor.to: self._to,
            torch.Tensor.cuda: self._cuda,
            **recurrent_calls(recorder),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {name: cpu_for(value) for name, value in (kwargs or {}).items()}
        return self._paths.get(func, func)(*map(cpu_for, args), **named)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        """Call attention without dropout: its cost is not modelled, and on the CPU it would select the math path."""
        if self._choice.backend(query, key, value, attn_mask is not None) == "math":
            with sdpa_kernel(SDPBackend.MATH):
                return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
        return scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **options)

    def _multi_head_attention(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the functions that torch's multi-head attention calls: a mode does not see what the functions that it
        handles call. Without gradients, CUDA has a fast path, which projects the rows of all sequences by one GEMM."""
        projected: dict[str, Any] = {} if torch.is_grad_enabled() else {"linear": _project}
        with patch.multiple(
            functional, scaled_dot_product_attention=self._attention, dropout=_dropout, softmax=_softmax, **projected
        ):
            return functional.multi_head_attention_forward(*args, **kwargs)

    def _tensor(self, data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        made = torch.tensor(data, device=device, **options)
        if device is None and made.numel():
            self._host_tensors.add(made)
        return made

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Copy a tensor that was created on the host when it is moved to a device."""
        if tensor in self._host_tensors and _device_is_named(args, kwargs):
            kwargs["copy"] = True
        return tensor.to(*args, **kwargs)

    def _cuda(self, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return self._to(tensor, "cpu")


def cpu_for(value: Any) -> Any:
    """Return the CPU for a CUDA device; any other value unchanged."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def _device_is_named(args: Any, kwargs: Any) -> bool:
    return isinstance(kwargs.get("device") or (args[0] if args else None), (str, torch.device))


def _project(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Project tokens (length, batch, width) in the order of memory, in which the batch may come first."""
    if input.dim() == 3 and not input.is_contiguous():
        return linear(input.transpose(0, 1), weight, bias).transpose(0, 1)
    return linear(input, weight, bias)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if training and not inplace and 0 < p < 1:
        return torch.native_dropout(input, p, True)[0]
    return dropout(input, p, training, inplace)


def _softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Use the softmax that reads fp16 and writes fp32, which only CUDA has."""
    if input.dtype == torch.float16 and dtype == torch.float32 and dim is not None:
        return torch._softmax(input, dim, True)
    return softmax(input, dim, _stacklevel, dtype)


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
def gpu_defaults(emitter: Emitter, name: str) -> Iterator[set[object]]:
    """Give torch the defaults of a machine with a GPU of this name, and yield the set of compiled functions that ran.

    Optimizers update all parameters at once, modules run uncompiled, and CUDA's autocast, events, synchronization and
    NVTX ranges work without CUDA.
    """
    optimizer, autocast = import_module("torch.optim.optimizer"), torch.amp.autocast_mode.autocast
    foreach, enter = ["cpu", *optimizer._get_foreach_kernels_supported_devices()], autocast.__init__

    def entered(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **options: Any) -> None:
        enter(self, cpu_for(device_type), dtype or torch.get_autocast_dtype(device_type), *args, **options)

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


class Event:
    """Stand-in for torch.cuda.Event. Its times are those of the host, on which the script runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._recorded_s = 0.0

    def record(self, *_: Any) -> None:
        self._recorded_s = perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds from this event to another."""
        return 1e3 * (end._recorded_s - self._recorded_s)

    def query(self) -> bool:
        return True

    def wait(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...


def stand_ins(name: str) -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
    """Return (holder, attribute, stand-in) of the functions that would fail without a GPU. `name` is the GPU's name."""
    return (
        (torch.cuda, "Event", Event),
        (torch.cuda, "synchronize", _nothing),
        (torch.cuda, "set_device", _nothing),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "get_device_name", lambda *_: name),
        (torch.cuda, "reset_peak_memory_stats", _nothing),
    )


def _nothing(*_: Any, **__: Any) -> None: ...
