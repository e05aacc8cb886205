"""Emits ranges around module calls, phases and steps, for NVTX and as record_function, and notes what modules hold."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from tracekit.analyzers.trace import ranges
from tracekit.capture.backward_ranges import BackwardRanges, is_recorded_by_nsys
from tracekit.run import Run, require

if TYPE_CHECKING:
    from torch import nn


def _nothing(_: list[Any]) -> None: ...


class Called:
    """The modules of a program. Those within another module are counted with it.

    `hold` is called with the weights and buffers of each root before it runs.
    """

    def __init__(self, hold: Callable[[list[Any]], None] = _nothing) -> None:
        self._hold, self._seen = hold, set[int]()
        self.parameters = self.weight_bytes = self.buffer_bytes = 0
        self.batch_size = 0
        """First dimension of the first tensor that a module gets; 0 until one was seen."""
        self._bytes_of: dict[Any, int] = {}

    def add(self, root: "nn.Module") -> None:
        """Count a module that belongs to no module called before."""
        weights, buffers = self._new(root.parameters()), self._new(root.buffers())
        self._hold([*weights, *buffers])
        self.parameters += sum(each.numel() for each in weights)
        self.weight_bytes += sum(each.nbytes for each in weights)
        self.buffer_bytes += sum(each.nbytes for each in buffers)
        for each in weights:
            self._bytes_of[each.dtype] = self._bytes_of.get(each.dtype, 0) + each.nbytes

    def see(self, arguments: tuple[Any, ...]) -> None:
        """Take the batch size from the positional arguments of a call."""
        if not self.batch_size:
            shapes = (each.shape for each in arguments if isinstance(each, require("torch").Tensor))
            self.batch_size = next((int(shape[0]) for shape in shapes if shape), 0)

    @property
    def dtype(self) -> str:
        """The dtype of most weights, as the settings of a run name it; "" without weights or for other dtypes."""
        torch = require("torch")
        exact = torch.get_float32_matmul_precision() == "highest"
        names = {torch.float32: "fp32" if exact else "tf32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        return names.get(max(self._bytes_of, key=self._bytes_of.__getitem__, default=None), "")

    def completed(self, run: Run) -> Run:
        """Return the run with what is known of its modules."""
        return replace(run, dtype=self.dtype, batch_size=self.batch_size)

    def _new(self, tensors: Any) -> list[Any]:
        new = [each for each in tensors if id(each) not in self._seen]
        self._seen.update(map(id, new))
        return new


_COMPILED = "_orig_mod"
"""Attribute of torch.compile's wrapper with the original module."""


class Emitter(Protocol):
    """The target of ranges. Pushes and pops are balanced on each thread."""

    def push(self, name: str) -> None: ...

    def pop(self) -> None: ...


class ProfilerRanges:
    """Emits ranges for profilers: NVTX in the default domain for nsys, and user annotations for torch.profiler.

    torch.autograd's own binding opens the record function. It costs a fifth of the context manager `record_function`
    and gives the same event.
    """

    def __init__(self) -> None:
        autograd = require("torch.autograd")
        self._enter, self._exit = autograd._record_function_with_args_enter, autograd._record_function_with_args_exit
        self._nvtx = require("nvtx.nvtx") if find_spec("nvtx") else None  # not what `nvtx_ranges` replaces
        self._threads = threading.local()
        self.backward: BackwardRanges | None = None
        if self._nvtx and is_recorded_by_nsys():
            self.backward = BackwardRanges(self._nvtx.push_range, self._nvtx.pop_range)

    def push(self, name: str) -> None:
        if self._nvtx:
            self._nvtx.push_range(name)
        self._open_ranges().append(self._enter(name))

    def pop(self) -> None:
        self._exit(self._open_ranges().pop())
        if self._nvtx:
            self._nvtx.pop_range()

    def _open_ranges(self) -> list[Any]:
        if not hasattr(self._threads, "open"):
            self._threads.open = []
        return self._threads.open


class NoRanges:
    """An emitter that emits nothing, to time a run without ranges."""

    def push(self, name: str) -> None: ...

    def pop(self) -> None: ...


@contextmanager
def _span(name: str, emitter: Emitter) -> Iterator[None]:
    emitter.push(name)
    try:
        yield
    finally:
        emitter.pop()


def step(index: int, emitter: Emitter) -> Any:
    """Return a context manager around one step of the run."""
    return _span(ranges.step(index), emitter)


def phase(name: str, emitter: Emitter) -> Any:
    """Return a context manager around a phase of a step, such as prefill or backward."""
    return _span(ranges.phase(name), emitter)


class ModuleRange:
    """The two hooks of one module. They count open ranges, so that an error in a hook of other code cannot unbalance
    them.

    Nothing is emitted inside a compiled graph, which has no module calls.
    """

    __slots__ = ("_backward", "_emitter", "_is_compiling", "_name", "_open")

    def __init__(self, name: str, emitter: Emitter) -> None:
        self._name, self._emitter, self._open = name, emitter, list[int]()
        self._backward: BackwardRanges | None = getattr(emitter, "backward", None)
        self._is_compiling = require("torch.compiler").is_compiling

    def before(self, *_: Any) -> None:
        if not self._is_compiling():
            self._open.append(self._backward.now() if self._backward else 0)
            self._emitter.push(self._name)

    def after(self, *call: Any) -> None:
        """Close the range. `call` ends with the output."""
        if not self._is_compiling() and self._open:
            since = self._open.pop()
            self._emitter.pop()
            if self._backward and call:
                self._backward.name(call[-1], since, self._name)


class Annotation:
    """The hooks on a model. `remove()`, or the end of the `with` block, removes them."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> "Annotation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def annotate(model: "nn.Module", emitter: Emitter | None = None) -> Annotation:
    """Emit a range for every module call, named after the module's path and class.

    As a plain call, this lasts until `remove()`; as a context manager, until the block ends. Containers without a
    forward method (ModuleList, ModuleDict) get no range. Ranges close if a forward raises.
    """
    emitter = emitter or ProfilerRanges()
    handles: list[Any] = []
    for path, module in model.named_modules():
        if has_forward(module):
            span = ModuleRange(range_name(path, module), emitter)
            handles.append(module.register_forward_pre_hook(span.before, prepend=True))
            handles.append(module.register_forward_hook(span.after, always_call=True))
    return Annotation(handles)


def is_annotated(module: "nn.Module") -> bool:
    """Return whether `annotate` has added ranges to the module."""
    return any(isinstance(getattr(hook, "__self__", None), ModuleRange) for hook in module._forward_pre_hooks.values())


def range_name(path: str, module: "nn.Module") -> str:
    """Return the name of a module's range: its path and class, without torch.compile's wrapper."""
    parts = [part for part in path.split(".") if part and part != _COMPILED]
    return ranges.module(".".join(parts), type(getattr(module, _COMPILED, module)).__name__)


def has_forward(module: "nn.Module") -> bool:
    """Return whether the module can be called and takes hooks.

    A container inherits the forward of nn.Module, which only raises, and a scripted module takes no hooks.
    """
    if isinstance(module, require("torch.jit").ScriptModule):
        return False
    return getattr(module.forward, "__func__", module.forward) is not require("torch.nn").Module.forward


def annotate_every_module(emitter: Emitter, called: Called | None = None) -> Annotation:
    """Hook every module call of the process, and count the modules in `called`. Modules with the ranges of `annotate`
    keep them."""
    modules, spans = require("torch.nn.modules.module"), _Spans(emitter, called or Called())
    return Annotation(
        [
            modules.register_module_forward_pre_hook(spans.before),
            modules.register_module_forward_hook(spans.after, always_call=True),
        ]
    )


class _Spans:
    """The range of each module. A module not seen before is a root and names all modules inside it.

    Paths are relative to the first root. Those inside another root, such as a loss, begin with its class.
    """

    def __init__(self, emitter: Emitter, called: Called) -> None:
        self._emitter, self._called = emitter, called
        self._is_compiling = require("torch.compiler").is_compiling
        self._spans: WeakKeyDictionary[nn.Module, ModuleRange | None] = WeakKeyDictionary()
        self._roots: dict[str, int] = {}

    def before(self, module: "nn.Module", arguments: tuple[Any, ...] = (), *_: Any) -> None:
        if self._is_compiling():
            return
        self._called.see(arguments)
        if module not in self._spans:
            self._add_root(module)
        span = self._spans[module]
        if span:
            span.before()

    def after(self, module: "nn.Module", *call: Any) -> None:
        span = None if self._is_compiling() else self._spans.get(module)
        if span:
            span.after(*call)

    def _add_root(self, root: "nn.Module") -> None:
        self._called.add(root)
        prefix = self._prefix(type(root).__name__)
        for path, module in root.named_modules():
            name = range_name(f"{prefix}.{path}" if prefix else path, module)
            wanted = has_forward(module) and not is_annotated(module)
            self._spans[module] = ModuleRange(name, self._emitter) if wanted else None

    def _prefix(self, type_name: str) -> str:
        if not self._roots:
            self._roots[type_name] = 1
            return ""
        number = self._roots[type_name] = self._roots.get(type_name, 0) + 1
        return type_name if number == 1 else f"{type_name}_{number}"
