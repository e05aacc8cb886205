"""Sends the NVTX ranges that a program makes, with torch or the package nvtx, to an emitter."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.util import find_spec
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

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
