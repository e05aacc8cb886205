"""Progress of long work in a terminal, on stderr (a pipe gets none of it), and the end of a command by a signal."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


SHOWN_AFTER_S = 2.0
"""Time after which work shows its progress."""
_REMEMBERED_S = 3600.0
"""Period whose speed gives the time left; a single item may take minutes."""


@contextmanager
def shown_progress() -> Iterator[None]:
    """Draw a bar for each work in this block that takes longer than two seconds: n of N, and the time left."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    from tracekit.analyzers.core import watching  # with all that starts processes

    bars = _Bars()
    try:
        with watching(bars.see):
            yield
    finally:
        bars.close()


class _Work(NamedTuple):
    began: float
    bar: "TaskID | None" = None


class _Bars:
    """One bar for each work that is being done, of which each began inside the one before.

    They are drawn by the thread that works, between two parts of its work: another thread would take time from steps
    that are being measured.
    """

    def __init__(self) -> None:
        self._works: dict[str, _Work] = {}
        self._drawn: Progress | None = None

    def see(self, what: str, done: int, total: int) -> None:
        self._works.setdefault(what, _Work(time.monotonic()))
        order = [*self._works]
        for inner in order[order.index(what) + (done < total) :]:
            self._end(inner)
        if done < total:
            self._draw(what, done, total)

    def close(self) -> None:
        for what in [*self._works]:
            self._end(what)

    def _draw(self, what: str, done: int, total: int) -> None:
        began, bar = self._works[what]
        if bar is None and time.monotonic() - began < SHOWN_AFTER_S:
            return
        drawn = self._drawn = self._drawn or _progress()
        drawn.start()
        if bar is None:
            bar = drawn.add_task(_line(what), total=total)
            self._works[what] = _Work(began, bar)
        drawn.update(bar, completed=done, total=total, refresh=True)

    def _end(self, what: str) -> None:
        bar = self._works.pop(what).bar
        if bar is None or self._drawn is None:
            return
        self._drawn.remove_task(bar)
        self._drawn.refresh()
        if not self._drawn.tasks:
            self._drawn.stop()
            self._drawn = None


def _line(what: str) -> str:
    from tracekit.reports.words import printable_lines

    return " ".join(printable_lines(what).split())


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    what = TextColumn("{task.description}", markup=False)
    columns = (what, BarColumn(), MofNCompleteColumn(" of "), TimeRemainingColumn(compact=True), TextColumn("left"))
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, auto_refresh=False, speed_estimate_period=_REMEMBERED_S)


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
