"""Cleans up when a signal ends a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn

_ASKED_BY_SIGNAL = 128
"""Shells report a process that a signal ended with 128 and the signal's number."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt, so that files are cleaned up.

    A signal that is ignored (as under nohup) stays ignored.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    on_main = current_thread() is main_thread()  # Only the main thread may set handlers.
    ours = [number for number in numbers if on_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # A second signal must not interrupt the cleaning up.
    raise SystemExit(_ASKED_BY_SIGNAL + number)
