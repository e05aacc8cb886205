"""Decode the chunks of a file in order, in several processes if there are many chunks."""

import gc
import pickle
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread
from types import TracebackType

import msgspec

from tracekit.analyzers.core import answer_messages, cores, receive, send, started_process
from tracekit.analyzers.trace.kineto.chunks import HEAD_BYTES, Chunk, Chunks, Decoded, decode_sound
from tracekit.analyzers.trace.kineto.event_columns import EventColumns, event_columns
from tracekit.analyzers.trace.kineto.salvage import Effort, decode_chunk

MOST_WORKERS = 7
DEPTH = 2
"""Number of chunks that a worker has at a time: one waits while it decodes another."""

_PIPE_BYTES = 1 << 20


class DecodedChunk(msgspec.Struct):
    """The columns of a chunk's `total` events. The other fields are those of `Decoded`."""

    columns: EventColumns
    total: int
    tail: bytes | None = None
    unread: bytes = b""
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0


def read_chunk(text: bytes, final: bool, effort: Effort) -> DecodedChunk:
    """Read any text. Raises TooDamagedError if the file is too damaged to read on."""
    return _columns(decode_chunk(text, final, effort))


def read_sound_chunk(text: bytes) -> DecodedChunk | None:
    """Read a chunk that is not the final one; None if it is damaged."""
    events = decode_sound(text)
    return None if events is None else _columns(Decoded(events))


def _columns(decoded: Decoded) -> DecodedChunk:
    return DecodedChunk(
        event_columns(decoded.events),
        len(decoded.events),
        decoded.tail,
        decoded.unread,
        decoded.repaired,
        decoded.bad_utf8,
        decoded.skipped,
    )


def main() -> None:
    """Answer the text of a chunk with its `DecodedChunk`, or None if the chunk is damaged, pickled."""
    gc.disable()
    answer_messages(lambda text: pickle.dumps(read_sound_chunk(text), protocol=5))


Answer = Future[DecodedChunk | None]
"""None if the chunk is damaged, or the worker has ended."""


class _Worker:
    """A process, and the two threads that send it chunks and receive its answers in order."""

    def __init__(self) -> None:
        self._process = started_process(__name__, pipesize=_PIPE_BYTES)
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
    return min(cores() - 1, MOST_WORKERS) if sys.executable else 0


ALONE_CHUNKS = 6
"""Number of chunks that are decoded before workers start, because a worker takes a third of a second to start."""


class _Pending(msgspec.Struct):
    chunk: Chunk
    answer: Answer | None = None
    decoded: DecodedChunk | None = None

    @property
    def ready(self) -> bool:
        return self.answer is None or self.answer.done()


def read_chunks(chunks: Chunks) -> Iterator[DecodedChunk]:
    """Yield the decoded chunks in order. Only the last one has a tail, unless the end of the events is missing.

    Workers decode undamaged chunks only. This process decodes a damaged chunk and the text after its end. Raises
    TooDamagedError if the file is too damaged to read on.
    """
    with ExitStack() as stack:
        ahead = _Ahead(iter(chunks), stack)
        carried, effort = b"", Effort()
        for chunk, decoded in ahead:
            if decoded is None or carried:
                decoded = read_chunk(carried + chunk.text, chunk.final, effort)
            else:
                effort.events += decoded.total
            if decoded.tail is not None:
                decoded.tail += b"" if chunk.final else ahead.text() + chunks.rest(HEAD_BYTES)
                yield decoded
                return
            carried = decoded.unread + b"," if decoded.unread else b""
            yield decoded


class _Ahead:
    """Reads ahead. Gives chunks to workers with free slots, and decodes in this process while the next result is
    pending."""

    def __init__(self, chunks: Iterator[Chunk], stack: ExitStack) -> None:
        self._chunks, self._stack = chunks, stack
        self._pool: Pool | None = None
        self._limit = 1
        self._pending: deque[_Pending] = deque()
        self._started = 0

    def __iter__(self) -> Iterator[tuple[Chunk, DecodedChunk | None]]:
        while self._fill():
            first = self._pending.popleft()
            yield first.chunk, first.answer.result() if first.answer else first.decoded

    def text(self) -> bytes:
        """Return the text that was read ahead."""
        return b"".join(p.chunk.before + p.chunk.text for p in self._pending)

    def _fill(self) -> bool:
        """Read ahead until the first chunk is ready or too many are waiting. Return whether there is a first one."""
        while not (self._pending and self._pending[0].ready) or self._has_room:
            if len(self._pending) >= self._limit or not self._start_next():
                break
        return bool(self._pending)

    @property
    def _has_room(self) -> bool:
        return self._pool is not None and self._pool.has_room

    def _start_next(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._started += 1
        if self._started == ALONE_CHUNKS and (workers := spare_cores()):
            self._pool = self._stack.enter_context(Pool(workers))
            self._limit = (DEPTH + 2) * (workers + 1)
        if chunk.final:
            self._pending.append(_Pending(chunk))
        elif self._pool is not None and self._pool.has_room:
            self._pending.append(_Pending(chunk, self._pool.submit(chunk.text)))
        else:
            self._pending.append(_Pending(chunk, decoded=read_sound_chunk(chunk.text)))
        return True
