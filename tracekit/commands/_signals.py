"""Ending a command in order when the system asks for it."""

import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn

_ASKED_BY_SIGNAL = 128
"""Shells report a process that a signal ended with 128 and the signal's number."""


def end_in_order() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt, so that files are cleaned up.

    A signal that is ignored (as under nohup) stays ignored.
    """
    if current_thread() is not main_thread():
        return  # Only the main thread may set handlers.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # A second one must not interrupt the cleaning up.
    raise SystemExit(_ASKED_BY_SIGNAL + number)
