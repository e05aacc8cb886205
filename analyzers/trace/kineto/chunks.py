"""Cut a stream of JSON text into chunks of whole events without parsing it: between `}` and `{"ph":`."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice

import msgspec

from tracekit.analyzers.trace.kineto.events import BROKEN, PHASES, Event, decode_events

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_BARE_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[")
_PHASE_KEY = re.compile(rb'"ph"\s*+:')

BOUNDARY = re.compile(rb'\}[\s,]*+(?=\{\s*+"(?:ph|cat|name|args|pid|tid|ts|tts|dur|bp|s|sf|id|id2|scope|cname)"\s*+:)')
"""The gap between two events. It may also match inside an event or in another array; the pieces then fail to decode."""

_AFTER_LAST_EVENT = rb'[\s,]*+(\])\s*+(?:,\s*+"[^"\\]*+"\s*+:|\}|\Z|[^\s,:\]}{"])'
_ARRAY_END = re.compile(rb"\}" + _AFTER_LAST_EVENT)
_REST_OF_EVENT = re.compile(rb'[^{]{0,4096}?"(?:ph|cat|args|pid|tid|ts|dur)"\s*+:')
_EMPTY_ARRAY_END = re.compile(_AFTER_LAST_EVENT)

HEAD_BYTES = 64 << 20
CHUNK_BYTES = 4 << 20
EVENT_BYTES = 16 << 20
"""Size up to which a chunk without a boundary grows. No event is longer."""
_WINDOW_BYTES = 1 << 16


class Chunk(msgspec.Struct, frozen=True):
    """The text of whole events. `before` is the gap between this chunk and the previous one.

    The final chunk extends to the end of the file.
    """

    text: bytes
    final: bool
    before: bytes = b""


class Leftover(msgspec.Struct):
    """Text that was counted but not read: its size in bytes, and its apparent number of events."""

    size: int = 0
    events: int = 0
    _end: bytes = b""

    def add(self, text: bytes) -> None:
        self.size += len(text)
        self.events += count_events(self._end + text)
        self._end = text[-len(b'"ph"') :]


class Chunks:
    """Iterates over chunks of about `CHUNK_BYTES` with whole events; the final chunk comes last.

    `head` is the text before the events. `opened` says whether a list of events was seen.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.head, first, self.opened = open_events(blocks)
        self._waiting = [first]
        self._between = b""

    def __iter__(self) -> Iterator[Chunk]:
        size = len(self._waiting[0])
        for block in self._blocks:
            size += len(block)
            if size >= CHUNK_BYTES:
                cut = _last_boundary(block)
                if cut is None and size > EVENT_BYTES:
                    cut = len(block), len(block)
                if cut:
                    chunk = Chunk(b"".join([*self._waiting, memoryview(block)[: cut[0]]]), False, self._between)
                    self._between, self._waiting = block[slice(*cut)], [block[cut[1] :]]
                    size = len(self._waiting[0])
                    yield chunk
                    continue
            self._waiting.append(block)
        between, self._between = self._between, b""
        last, self._waiting = b"".join(self._waiting), []
        yield Chunk(last, True, between)

    def rest(self, limit: int) -> bytes:
        """Return the text after the last chunk, up to about `limit` bytes."""
        parts = [self._between, *self._waiting]
        self._between, self._waiting = b"", []
        size = sum(map(len, parts))
        while size <= limit and (block := next(self._blocks, b"")):
            parts.append(block)
            size += len(block)
        return b"".join(parts)

    def drain(self) -> Leftover:
        """Read to the end of the file, and count the events there."""
        left = Leftover()
        for block in self._blocks:
            left.add(block)
        return left


def open_events(blocks: Iterator[bytes]) -> tuple[bytes, bytes, bool]:
    """Split the first blocks into (text before the events, beginning of the events, whether events were seen).

    A bare array has no text before its events.
    """
    first = next(blocks, b"")
    bare = _BARE_ARRAY.match(first)
    if bare:
        return b"", first[bare.end() :], True
    text, searched = bytearray(first), 0
    while (key := _EVENTS_KEY.search(text, searched)) is None and len(text) < HEAD_BYTES:
        more = b"".join(islice(blocks, 1))
        if not more:
            break
        searched = max(len(text) - _WINDOW_BYTES, 0)
        text += more
    if key is None:
        return bytes(text), b"", False
    return bytes(text[: key.start()]), bytes(text[key.end() :]), True


def array_ends(text: bytes) -> Iterator[tuple[int, int]]:
    """Return the offsets before and after each `]` that may close the events.

    Such a bracket may also be inside an event: the text before it then fails to decode, or the event goes on.
    """
    empty = _EMPTY_ARRAY_END.match(text)
    if empty:
        yield empty.span(1)
    for end in _ARRAY_END.finditer(text):
        if not _REST_OF_EVENT.match(text, end.end(1)):
            yield end.span(1)


def count_events(text: bytes) -> int:
    """Return the apparent number of events in the text: the number of its keys "ph"."""
    return sum(1 for _ in _PHASE_KEY.finditer(text))


def _last_boundary(block: bytes) -> tuple[int, int] | None:
    """Return the offsets after the last whole event, and at the event after it."""
    for start in (max(len(block) - _WINDOW_BYTES, 0), 0):
        for last in deque(BOUNDARY.finditer(block, start), maxlen=1):
            return last.start() + 1, last.end()
    return None


BETWEEN_EVENTS = b" \t\r\n,"
END_TRIES = 8


class Decoded(msgspec.Struct):
    """The events of a chunk.

    `tail` is the text after the end of the list of events; None if the list continues. `unread` is text at the end of
    the chunk that is not a whole event and is read together with the next chunk. `repaired`, `bad_utf8` and `skipped`
    count events.
    """

    events: list[Event] = msgspec.field(default_factory=list)
    tail: bytes | None = None
    unread: bytes = b""
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0


def decode_sound(text: bytes) -> list[Event] | None:
    """Return the events; None if the text is damaged."""
    try:
        return decode_events(text)
    except BROKEN:
        return None


def decode_whole(text: bytes) -> list[Event] | None:
    """Return the same as `decode_sound` for text that may be a part of an event: every event must have a known
    phase."""
    events = decode_sound(text.strip(BETWEEN_EVENTS))
    return None if events is None or any(event.ph not in PHASES for event in events) else events


def decode_to_end(text: bytes) -> Decoded | None:
    """Return the events before the end of their list; None if there is no such end or they are damaged."""
    for before, behind in islice(array_ends(text), END_TRIES):
        events = decode_whole(text[:before])
        if events is not None:
            return Decoded(events, tail=text[behind:])
    return None
