"""Stand-ins for the functions of torch.cuda that scripts call, on a machine without a GPU."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch


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
