"""A stream of JSON cut into chunks of whole events, without a scanner: between `}` and `{"ph":`."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_BARE_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[")

BOUNDARY = re.compile(rb'\}[\s,]*+(?=\{\s*+"(?:ph|cat|name|args|pid|tid|ts|dur|bp|s)"\s*+:)')
"""Between two events. It may also match inside an event, or in another array: then the pieces do not decode."""

ARRAY_END = re.compile(rb'(?:\}|\A)[\s,]*+(\])\s*+(?:,\s*+"|\}|\Z)')
"""The `]` that closes the events. It may also match inside an event: then what is before it does not decode."""

HEAD_BYTES = 64 << 20
CHUNK_BYTES = 4 << 20
EVENT_BYTES = 64 << 20
_WINDOW_BYTES = 1 << 16


@dataclass(frozen=True)
class Chunk:
    """Text of whole events; `before`: what lies between it and the chunk before. The final one goes to the end."""

    text: bytes
    final: bool
    before: bytes = b""


class Chunks:
    """Chunks of whole events, of about `CHUNK_BYTES`, then the final rest.

    `head` is the text before the events. `opened`: the events were found.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.head, first, self.opened = open_events(blocks)
        self._waiting = [first]
        self._between = b""

    def __iter__(self) -> Iterator[Chunk]:
        for block in self._blocks:
            if self._size() + len(block) >= CHUNK_BYTES:
                cut = _last_boundary(block)
                if cut is None and self._size() + len(block) > EVENT_BYTES:
                    cut = len(block), len(block)
                if cut:
                    chunk = Chunk(b"".join([*self._waiting, memoryview(block)[: cut[0]]]), False, self._between)
                    self._between, self._waiting = block[slice(*cut)], [block[cut[1] :]]
                    yield chunk
                    continue
            self._waiting.append(block)
        between, self._between = self._between, b""
        last, self._waiting = b"".join(self._waiting), []
        yield Chunk(last, True, between)

    def rest(self, limit: int) -> bytes:
        """What follows the last chunk, up to about `limit` bytes."""
        text = b"".join([self._between, *self._waiting])
        for block in self._blocks:
            text += block
            if len(text) > limit:
                break
        return text

    def _size(self) -> int:
        return sum(map(len, self._waiting))


def open_events(blocks: Iterator[bytes]) -> tuple[bytes, bytes, bool]:
    """(text before the events, "" in a bare array; their beginning; whether they were found)."""
    text = next(blocks, b"")
    bare = _BARE_ARRAY.match(text)
    if bare:
        return b"", text[bare.end() :], True
    key = _EVENTS_KEY.search(text)
    while key is None and len(text) < HEAD_BYTES:
        more = b"".join(islice(blocks, 1))
        if not more:
            break
        searched = max(len(text) - _WINDOW_BYTES, 0)
        text += more
        key = _EVENTS_KEY.search(text, searched)
    return (text[: key.start()], text[key.end() :], True) if key else (text, b"", False)


def _last_boundary(block: bytes) -> tuple[int, int] | None:
    """Offsets behind the last event that is whole, and of the one after it."""
    for start in (max(len(block) - _WINDOW_BYTES, 0), 0):
        for last in deque(BOUNDARY.finditer(block, start), maxlen=1):
            return last.start() + 1, last.end()
    return None
