"""The chunks of a file decoded in order, by several processes when there are many of them."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from tracekit.analyzers.readers.chunking import HEAD_BYTES, Chunk, Chunks
from tracekit.analyzers.readers.part import Part, read_part, sound_part
from tracekit.analyzers.readers.pool import DEPTH, Answer, Pool, spare_cores

ALONE_CHUNKS = 6
"""Chunks decoded before workers are started: they take a third of a second to come up."""


@dataclass
class _Pending:
    chunk: Chunk
    answer: Answer | None = None
    part: Part | None = None

    @property
    def known(self) -> bool:
        return self.answer is None or self.answer.done()


def read_parts(chunks: Chunks) -> Iterator[Part]:
    """The parts of all chunks, in order. Only the last one has a tail (None: the end of the events was not found).

    Workers decode sound chunks only; what is broken, and what follows its end, is decoded here.
    """
    with ExitStack() as stack:
        pending = _Ahead(iter(chunks), stack)
        carried = b""
        for chunk, part in pending:
            if part is None or carried:
                part = read_part(carried + chunk.text, chunk.final)
            if part.tail is not None:
                part.tail += b"" if chunk.final else pending.text() + chunks.rest(HEAD_BYTES)
                yield part
                return
            carried = part.unread + b"," if part.unread else b""
            yield part


class _Ahead:
    """Reads ahead of what is handed out: to workers that have room, else decoding here while the next is not known."""

    def __init__(self, chunks: Iterator[Chunk], stack: ExitStack) -> None:
        self._chunks, self._stack = chunks, stack
        self._pool: Pool | None = None
        self._limit = 1
        self._pending: deque[_Pending] = deque()
        self._started = 0

    def __iter__(self) -> Iterator[tuple[Chunk, Part | None]]:
        while self._fill():
            first = self._pending.popleft()
            yield first.chunk, first.answer.result() if first.answer else first.part

    def text(self) -> bytes:
        """All that was read ahead."""
        return b"".join(p.chunk.before + p.chunk.text for p in self._pending)

    def _fill(self) -> bool:
        """Whether there is a first one: a known one, unless too many are ahead of it or the chunks have ended."""
        while not (self._pending and self._pending[0].known) or self._has_room:
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
            self._pending.append(_Pending(chunk, part=sound_part(chunk.text)))
        return True
