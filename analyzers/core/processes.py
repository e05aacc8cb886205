"""Further processes of this Python, which answer messages, and the progress of long work.

A message is its length in 8 bytes, then its bytes. Who does the work counts what is done, and who started it may watch.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any, TypeVar

_LENGTH_BYTES = 8


def started_process(module: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a process that calls `main` of a module, with the modules of this process. `options` are those of Popen."""
    code = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
    command = [sys.executable, "-c", code, json.dumps(sys.path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options
    )


def answer_messages(answer: Callable[[bytes], bytes]) -> None:
    """Answer the messages on stdin until it ends. What `answer` prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when this one ends
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (message := receive(sys.stdin.buffer)) is not None:
        try:
            send(answers, answer(message))
        except BrokenPipeError:
            return


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None if the stream ended."""
    length = stream.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "little")
    message = stream.read(size)
    return message if len(message) == size else None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


T = TypeVar("T")

TOLD_EVERY_S = 0.1
"""Least time between two reports of the same work, so that watching it does not slow it."""


@dataclass
class _Watch:
    """Who is told of progress, and what was told last."""

    tell: Callable[[str, int, int], None]
    what: str = ""
    told: float = 0.0

    def see(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self.what and done < total and now - self.told < TOLD_EVERY_S:
            return
        self.what, self.told = what, now
        self.tell(what, done, total)


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(tell: Callable[[str, int, int], None]) -> Iterator[None]:
    """Call `tell` with what is being done in this block, how much of it is done, and the total; at its end both are
    equal."""
    token = _WATCH.set(_Watch(tell))
    try:
        yield
    finally:
        _WATCH.reset(token)


def progressed(what: str, done: int, total: int) -> None:
    """Tell who watches how much of some work is done."""
    watch = _WATCH.get()
    if watch:
        watch.see(what, done, total)


def counted(items: Collection[T], what: str) -> Iterator[T]:
    """Yield the items, and tell who watches how many of them the caller is done with."""
    for done, item in enumerate(items):
        progressed(what, done, len(items))
        yield item
    progressed(what, len(items), len(items))
