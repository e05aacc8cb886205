"""Sends the NVTX ranges that a program makes, with torch or the package nvtx, to an emitter."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

from tracekit.capture.emitted_ranges import Emitter
from tracekit.run import require


@contextmanager
def nvtx_ranges(emitter: Emitter) -> Iterator[None]:
    """Send ranges to `emitter` for the duration of the block.

    A decorator `nvtx.annotate` that was applied earlier, without a profiler, has left its function unchanged.
    """
    torch_calls: dict[str, Callable[..., Any]] = {"range_push": emitter.push, "range_pop": emitter.pop}
    calls = [(require("torch.cuda.nvtx"), torch_calls)]
    if find_spec("nvtx"):
        package = require("nvtx")
        calls += [(package, _functions(emitter)), (package.annotate, _methods(emitter))]
    with ExitStack() as stack:
        for holder, replaced in calls:
            for name, stand_in in replaced.items():
                stack.enter_context(patch.object(holder, name, stand_in))
        yield


def _functions(emitter: Emitter) -> dict[str, Callable[..., Any]]:
    """Return stand-ins for nvtx.push_range and nvtx.pop_range. The profiler's own ranges do not use them."""

    def push_range(message: str | None = None, *_: Any, **__: Any) -> None:
        emitter.push(message or "")

    def pop_range(*_: Any, **__: Any) -> None:
        emitter.pop()

    return {"push_range": push_range, "pop_range": pop_range}


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
