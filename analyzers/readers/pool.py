"""Run processes that decode chunks in parallel with this one.

They are started as commands, not by multiprocessing, because the caller may be a script without a main guard, a
daemonic process, or a process with threads and a GPU, with which fork or spawn does not work.
"""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread
from types import TracebackType

from tracekit.analyzers.readers.decode_worker import receive, send
from tracekit.analyzers.readers.decoded_chunk import DecodedChunk

MOST_WORKERS = 7
DEPTH = 2
"""Number of chunks that a worker has at a time: one waits while it decodes another."""

_PIPE_BYTES = 1 << 20
_RUN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tracekit.analyzers.readers.decode_worker import main; main()"
)

Answer = Future[DecodedChunk | None]
"""None if the chunk is damaged, or the worker has ended."""


class _Worker:
    """A process, and the two threads that send it chunks and receive its answers in order."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _RUN, json.dumps(sys.path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pipesize=_PIPE_BYTES
        )
        self._texts: SimpleQueue[bytes | None] = SimpleQueue()
        self._pending: SimpleQueue[Answer | None] = SimpleQueue()
        self._given = self._answered = 0  # Each is incremented by one thread only.
        for work in (self._feed, self._take):
            Thread(target=work, daemon=True).start()

    @property
    def waiting(self) -> int:
        return self._given - self._answered

    def submit(self, text: bytes) -> Answer:
        answer: Answer = Future()
        self._given += 1
        self._pending.put(answer)
        self._texts.put(text)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._texts.put(None)
        self._pending.put(None)
        self._process.wait()

    def _feed(self) -> None:
        assert self._process.stdin
        with suppress(OSError), self._process.stdin as stdin:
            while (text := self._texts.get()) is not None:
                send(stdin, text)

    def _take(self) -> None:
        assert self._process.stdout
        with self._process.stdout as stdout:
            while (answer := self._pending.get()) is not None:
                message = receive(stdout)
                answer.set_result(pickle.loads(message) if message else None)
                self._answered += 1


class Pool:
    """Worker processes for the cores that this process does not use. Closing the pool ends them."""

    def __init__(self, workers: int) -> None:
        self._workers = [_Worker() for _ in range(workers)]

    @property
    def has_room(self) -> bool:
        return any(worker.waiting < DEPTH for worker in self._workers)

    def submit(self, text: bytes) -> Answer:
        return min(self._workers, key=lambda worker: worker.waiting).submit(text)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            worker.close()


ALONE: ContextVar[bool] = ContextVar("ALONE", default=False)
"""Whether other processes read other files, so that this one has no spare cores."""


def spare_cores() -> int:
    """Return the number of cores that this process may use, minus one; 0 if no Python can be started."""
    if ALONE.get():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - 1, MOST_WORKERS) if sys.executable else 0
