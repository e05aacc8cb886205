"""Decode the chunks of a file in order, in several processes if there are many chunks."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from tracekit.analyzers.readers.chunking import HEAD_BYTES, Chunk, Chunks
from tracekit.analyzers.readers.decoded_chunk import DecodedChunk, read_chunk, read_sound_chunk
from tracekit.analyzers.readers.pool import DEPTH, Answer, Pool, spare_cores
from tracekit.analyzers.readers.salvage import Effort

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
