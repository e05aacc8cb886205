"""A stream of JSON cut into chunks of whole events, without a scanner: between `}` and `{"ph":`."""

import re
from collections.abc import Iterator
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


class Chunks:
    """Chunks of whole events of at least `CHUNK_BYTES`, then the final rest.

    `head` is the text before the events. `opened`: the events were found.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.head, self._buffer, self.opened = _open(blocks)

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        """(chunk, final). The final chunk goes to the end of the file."""
        for block in self._blocks:
            searched = len(self._buffer)
            self._buffer += block
            if len(self._buffer) < CHUNK_BYTES:
                continue
            cut = _last_boundary(self._buffer, searched)
            if cut or len(self._buffer) > EVENT_BYTES:
                chunk, self._buffer = self._buffer[: cut or None], self._buffer[cut:] if cut else b""
                yield chunk, False
        yield self._buffer, True

    def unread(self, text: bytes) -> None:
        """Puts the end of the last chunk back, in front of the next one."""
        self._buffer = text + b"," + self._buffer

    def rest(self, limit: int) -> bytes:
        """What follows the last chunk, up to about `limit` bytes."""
        text = self._buffer
        for block in self._blocks:
            text += block
            if len(text) > limit:
                break
        return text


def _open(blocks: Iterator[bytes]) -> tuple[bytes, bytes, bool]:
    """(head, beginning of the events, whether they were found)."""
    text = next(blocks, b"")
    bare = _BARE_ARRAY.match(text)
    if bare:
        return b"", text[bare.end() :], True
    key, searched = _EVENTS_KEY.search(text), 0
    while key is None and len(text) < HEAD_BYTES:
        more = b"".join(islice(blocks, 1))
        if not more:
            break
        searched = max(len(text) - _WINDOW_BYTES, 0)
        text += more
        key = _EVENTS_KEY.search(text, searched)
    return (text[: key.start()], text[key.end() :], True) if key else (text, b"", False)


def _last_boundary(text: bytes, searched: int) -> int:
    """Offset behind the `}` of the last event that is whole, 0 without one. Before `searched` there is none."""
    for start in (len(text) - _WINDOW_BYTES, max(searched - _WINDOW_BYTES, 0)):
        ends = [m.start() + 1 for m in BOUNDARY.finditer(text, max(start, 0))]
        if ends:
            return ends[-1]
    return 0
