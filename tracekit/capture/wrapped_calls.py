"""Records calls of the program as ranges: those that can wait for the device, and its own NVTX ranges."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, MethodType
from typing import Any
from unittest.mock import patch

from tracekit.analyzers.attribute import function_of
from tracekit.analyzers.trace import ranges
from tracekit.capture.emitted_ranges import Emitter
from tracekit.run import require

_READS = ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__")
"""Methods of tensors that wait for the values of one."""
_INSTALLED = ("site-packages", "dist-packages")
_TRACEKIT = Path(__file__).parents[1]


@contextmanager
def named_waits() -> Iterator[None]:
    """Record a range named after its caller around each call in the block that reads a tensor or synchronizes."""
    torch, recorder = require("torch"), _WaitRecorder()
    require("torch._dynamo.decorators").skip_code(_Method.__get__.__code__)
    tensor, cuda = torch.Tensor, torch.cuda
    methods = {name: _Method(getattr(tensor, name), recorder) for name in _READS}
    with ExitStack() as stack:
        for name, method in (methods | {"to": _Method(tensor.to, recorder, _moves_to_host)}).items():
            stack.enter_context(patch.object(tensor, name, method))
        stack.enter_context(patch.object(cuda, "synchronize", recorder.around(cuda.synchronize)))
        yield


def _moves_to_host(tensor: Any, *args: Any, **options: Any) -> bool:
    """Return whether `Tensor.to` with these arguments copies to the host."""
    target = args[0] if args else options.get("device", options.get("other"))
    target = getattr(target, "device", target)
    return getattr(target, "type", target) == "cpu" and tensor.device.type != "cpu"


class _Method:
    """Stand-in for a method of tensors. It equals the method, so that code that looks torch's functions up finds it."""

    def __init__(self, method: Any, recorder: "_WaitRecorder", does_wait: Callable[..., bool] | None = None) -> None:
        self._method, self._named = method, recorder.around(method, does_wait)

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self._named, tensor)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._method(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self._method == other)

    def __hash__(self) -> int:
        return hash(self._method)


class _WaitRecorder(threading.local):
    """Opens a range around a call that waits, unless this thread is inside of one; remembers the public path of each
    file."""

    def __init__(self) -> None:
        self._open, self._paths, self._roots = False, dict[str, str](), _roots()
        self._outside_graphs, autograd = require("torch._dynamo").disable, require("torch.autograd")
        self._enter, self._exit = autograd._record_function_with_args_enter, autograd._record_function_with_args_exit

    def around(self, call: Callable[..., Any], does_wait: Callable[..., bool] | None = None) -> Callable[..., Any]:
        """Return the call inside a range that names the line that made it; without one if it does not wait."""

        @wraps(call)
        def named(*args: Any, **options: Any) -> Any:
            unrecorded = self._open or (does_wait and not does_wait(*args, **options))
            name = "" if unrecorded else self._caller(sys._getframe(1))
            if not name:
                return call(*args, **options)
            self._open, opened = True, self._enter(name)
            try:
                return call(*args, **options)
            finally:
                self._exit(opened)
                self._open = False

        return self._outside_graphs(named)

    def _caller(self, frame: FrameType | None) -> str:
        """Return the name of the range: the nearest line outside torch, training frameworks and tracekit."""
        while frame:
            code = frame.f_code
            path = self._paths.get(code.co_filename)
            if path is None:
                path = self._paths[code.co_filename] = _public_path(code.co_filename, self._roots)
            if path:
                return ranges.frame(path, frame.f_lineno, code.co_name)
            frame = frame.f_back
        return ""


def _roots() -> tuple[Path, ...]:
    """Return the folders that paths are relative to: the working directory, then those of imports, longest first."""
    imports = sorted(
        {Path(each).absolute() for each in sys.path if each}, key=lambda each: len(each.parts), reverse=True
    )
    return tuple(each for each in (Path.cwd(), *imports) if each != each.parent)


def _public_path(file: str, roots: tuple[Path, ...]) -> str:
    """Return the path without the folders of this machine; "" in a file of a framework or of tracekit."""
    whole = Path(file).absolute()
    if file.startswith("<") or whole.is_relative_to(_TRACEKIT):
        return ""
    installed = [folder for folder in whole.parents if folder.name in _INSTALLED]
    root = next((each for each in (*installed, *roots) if whole.is_relative_to(each)), whole.parent)
    path = whole.relative_to(root).as_posix()
    return "" if function_of(f"{path}(1): f").framework else path


@contextmanager
def nvtx_ranges(emitter: Emitter) -> Iterator[None]:
    """Send the program's NVTX ranges to `emitter` for the duration of the block.

    A decorator `nvtx.annotate` that was applied earlier, without a profiler, has left its function unchanged.
    """
    calls = [(require("torch.cuda.nvtx"), _functions(emitter, "range_push", "range_pop"))]
    if find_spec("nvtx"):
        package = require("nvtx")
        calls += [(package, _functions(emitter, "push_range", "pop_range")), (package.annotate, _methods(emitter))]
    with ExitStack() as stack:
        for holder, replaced in calls:
            for name, stand_in in replaced.items():
                stack.enter_context(patch.object(holder, name, stand_in))
        yield


def _functions(emitter: Emitter, push_name: str, pop_name: str) -> dict[str, Callable[..., Any]]:
    """Return stand-ins for two functions of torch.cuda.nvtx (whose message is `msg`) or of nvtx. As there, a push
    returns how many ranges were open, and a pop without an open range does nothing. The profiler's own ranges do not
    use them."""
    depths = threading.local()

    def push(message: str | None = None, *_: Any, msg: str = "", **__: Any) -> int:
        emitter.push(message or msg)
        depths.open = getattr(depths, "open", 0) + 1
        return int(depths.open) - 1

    def pop(*_: Any, **__: Any) -> int:
        if getattr(depths, "open", 0):
            emitter.pop()
            depths.open -= 1
            return int(depths.open)
        return -1

    return {push_name: push, pop_name: pop}


def _methods(emitter: Emitter) -> dict[str, Callable[..., Any]]:
    """Return stand-ins for the methods of nvtx.annotate, a context manager and decorator."""

    def enter(self: Any) -> Any:
        emitter.push(self.init_args[0] or "")
        return self

    def leave(*_: Any) -> bool:
        emitter.pop()
        return False

    def decorated(self: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.init_args[0] or function.__name__):
                return function(*args, **kwargs)

        return inner

    return {"__enter__": enter, "__exit__": leave, "__call__": decorated}
