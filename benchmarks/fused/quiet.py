"""Lets one process of a benchmark time while the others are stopped, so that it shares neither host nor GPU."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SETTLE_S = 0.03
"""Time in which work that a stopped process has queued leaves the GPU."""


class Quiet:
    """Turns among the processes that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._lock, self._mine = folder / "lock", folder / f"{os.getpid()}.pid"
        self._mine.touch()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait for the turn, and stop the other processes during it."""
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [int(each.stem) for each in self._lock.parent.glob("*.pid") if each != self._mine]
            _signal(others, signal.SIGSTOP)
            time.sleep(_SETTLE_S)
            try:
                yield
            finally:
                _signal(others, signal.SIGCONT)

    def leave(self) -> None:
        """Say that this process ends, and its number may belong to another one."""
        self._mine.unlink(missing_ok=True)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
