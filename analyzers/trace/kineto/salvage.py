"""Read the events of a damaged chunk: split it until only broken pieces remain, then repair or skip each of them."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from tracekit.analyzers.trace.kineto.chunks import (
    BETWEEN_EVENTS,
    BOUNDARY,
    END_TRIES,
    EVENT_BYTES,
    Decoded,
    array_ends,
    count_events,
    decode_sound,
    decode_to_end,
    decode_whole,
)
from tracekit.analyzers.trace.kineto.events import BROKEN, PHASES, Event, decode_each, decode_events, decode_mistyped

_NO_NUMBER = re.compile(r"([:\[,]\s*+)[-+]?(?:NaN|nan|Infinity|inf)\b")
_TRAILING_COMMA = re.compile(r",(?=\s*+[}\]])")
_MISSING_COMMA = re.compile(r'(["\d\]}el])\s++(?="[^"\\]{1,64}"\s*+:)')
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(
    r"""\\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|)"""
)
_VALUE = re.compile(r'(:\s*+")(.{0,2048}?)("\s*+(?:,\s*+"[^"]{1,64}"\s*+:|\}))', re.DOTALL)
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def repaired_events(raw: bytes) -> tuple[list[Event], int, bool]:
    """Return (events, number of other objects among them, whether the text contained bytes that are not UTF-8).

    Several objects are found where the first key of one is damaged. There are no events if none can be repaired.
    """
    text = raw.decode("utf-8", "replace").strip(" \t\r\n,")
    for attempt in _attempts(text):
        objects = _decoded(attempt.encode())
        events = [each for each in objects if each.ph in PHASES]
        if events:
            return events, len(objects) - len(events), not _is_utf8(raw)
    return [], 0, False


def _attempts(text: str) -> Iterator[str]:
    """Yield the text with more and more repairs. Quotes come last, because their repair is a guess."""
    yield text
    text = _CONTROL.sub(" ", text)
    text = _ESCAPE.sub(lambda m: m[0] if m[1] else r"\\", text)
    text = _TRAILING_COMMA.sub("", _NO_NUMBER.sub(r"\1null", text))
    yield text
    yield _MISSING_COMMA.sub(r"\1, ", text)
    yield _VALUE.sub(lambda m: m[1] + _BARE_QUOTE.sub(r"\"", m[2]) + _closing_escape(m[2]) + m[3], text)


def _closing_escape(value: str) -> str:
    """Return a backslash if the value ends in one that would escape the closing quote."""
    return "\\" * ((len(value) - len(value.rstrip("\\"))) % 2)


def _decoded(text: bytes) -> list[Event]:
    try:
        return decode_events(text)
    except BROKEN:
        pass
    try:
        return [decode_mistyped(text)]
    except BROKEN:
        return []


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_FAN_OUT = 16
_REPAIRED_AT_ONCE = 1024
_MAX_REPAIR_BYTES = 1 << 16
_MAX_UNREAD_BYTES = 1 << 18
_MAX_JOINED_PIECES = 16
_MAX_JOINED_BYTES = 1 << 20
_REPAIR_COST = 5


class TooDamagedError(Exception):
    """The file is so damaged that reading on would take long and recover little."""


class Effort(msgspec.Struct):
    """Limits the work on damaged events of one file, so that a hostile file ends soon."""

    left: int = 1_000_000
    events: int = 0
    """Events that were read."""
    skipped: int = 0
    """Events beyond repair."""

    @property
    def repairs(self) -> bool:
        """Whether broken events are still repaired: not if more than a few events of the file are beyond repair."""
        return self.skipped <= 1000 + self.events // 100

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise TooDamagedError("Hundreds of thousands of its events are not valid JSON.")

    def skip(self, count: int, read_here: int) -> None:
        """Count skipped events. `read_here` is the number of events read from the current chunk so far."""
        self.skipped += count
        read = self.events + read_here
        if self.skipped > 1000 and self.skipped > read:
            raise TooDamagedError(f"{self.skipped:,} of its first {self.skipped + read:,} events cannot be read.")


def decode_chunk(chunk: bytes, final: bool, effort: Effort) -> Decoded:
    """Decode any text. A final chunk should hold the end of the list of events.

    Raises TooDamagedError if the file is too damaged to read on.
    """
    decoded = None
    if not final and (events := decode_sound(chunk)) is not None:
        decoded = Decoded(events)
    decoded = decoded or decode_to_end(chunk)
    if decoded is None and len(chunk) > EVENT_BYTES:
        raise TooDamagedError(f"{len(chunk) / 2**20:.0f} MiB of it contain no end of an event.")
    decoded = decoded or _Salvage(chunk, final, effort).run()
    effort.events += len(decoded.events)
    return decoded


class _Salvage:
    """Splits a chunk at apparent boundaries, into 16 parts again and again, until only broken pieces remain.

    An apparent boundary may be inside an event. So a broken piece is first repaired separately, then together with its
    neighbours.
    """

    def __init__(self, chunk: bytes, final: bool, effort: Effort) -> None:
        self.chunk, self.final, self.effort, self.out = chunk, final, effort, Decoded()
        cuts = [(m.start() + 1, m.end()) for m in BOUNDARY.finditer(chunk)]
        self.starts = [0, *(end for _, end in cuts)]
        self.stops = [*(start for start, _ in cuts), len(chunk)]

    def run(self) -> Decoded:
        if self._read_each(self.chunk) or self._read_to_end(self._read_each, self.chunk):
            return self.out
        broken: list[int] = []
        spans = [(0, len(self.starts))]
        while spans and not self._done:
            low, high = spans.pop()
            events = decode_whole(self._text(low, high))
            if events is not None:
                self._repair(broken)
                broken = []
                self.out.events += [] if self._done else events
            elif high - low == 1:
                broken.append(low)
                if len(broken) == _REPAIRED_AT_ONCE:
                    self._repair(broken)
                    broken = []
            else:
                step = -(-(high - low) // _FAN_OUT)
                spans += [(i, min(i + step, high)) for i in range(low, high, step)][::-1]
        self._repair(broken)
        return self.out

    @property
    def _done(self) -> bool:
        return self.out.tail is not None

    def _text(self, low: int, high: int) -> bytes:
        return self.chunk[self.starts[low] : self.stops[high - 1]]

    def _repair(self, broken: list[int]) -> None:
        """Read adjacent broken pieces from the left."""
        at, stop = (broken[0], broken[-1] + 1) if broken else (0, 0)
        while at < stop and not self._done:
            taken = self._mend_one(at) or self._joined(at, stop)
            if not taken and self._may_go_on(at, stop):
                self._leave(self._text(at, stop))
                return
            if not taken:
                self._skip(max(count_events(self._text(at, at + 1)), 1))
            at += max(taken, 1)

    def _may_go_on(self, at: int, stop: int) -> bool:
        """Return whether the pieces may be the beginning of an event that ends in the next chunk (or is truncated)."""
        at_end = stop == len(self.starts) and (at == stop - 1 or not self.final)
        return at_end and self.stops[stop - 1] - self.starts[at] < _MAX_UNREAD_BYTES

    def _leave(self, text: bytes) -> None:
        """Leave the text for the next chunk. At the end of the file it holds the truncated event."""
        self.out.unread = text
        if self.final:
            self._skip(max(count_events(text) - 1, 0))

    def _mend_one(self, piece: int) -> int:
        """Return 1 if the piece holds an event, perhaps the last one; else 0."""
        self.effort.spend(1)
        text = self._text(piece, piece + 1)
        ended = decode_to_end(text)
        if ended and ended.tail is not None:
            self._end(ended, ended.tail, piece)
            return 1
        if not self.effort.repairs:
            return 0
        if self._read_each(text) or self._repaired(text):
            return 1
        for way in (self._read_each, self._repaired):
            if self._read_to_end(way, text):
                self._end(Decoded(), self.out.tail or b"", piece)
                return 1
        return 0

    def _read_to_end(self, way: Callable[[bytes], bool], text: bytes) -> bool:
        """Read the text before the end of the events in one of two ways; the text after it becomes the tail."""
        for before, behind in islice(array_ends(text), END_TRIES):
            if way(text[:before]):
                self.out.tail = text[behind:]
                return True
        return False

    def _joined(self, low: int, stop: int) -> int:
        """Return the number of pieces, from `low`, that form one event; 0 if they do not."""
        if not self.effort.repairs:
            return 0
        for high in range(low + 2, min(low + _MAX_JOINED_PIECES, stop) + 1):
            if self.stops[high - 1] - self.starts[low] > _MAX_JOINED_BYTES:
                return 0
            text = self._text(low, high)
            ended = decode_to_end(text)
            events = ended.events if ended else decode_whole(text)
            if events is not None:
                self.out.events += events
                if ended and ended.tail is not None:
                    self._end(Decoded(), ended.tail, high - 1)
                return high - low
        return 0

    def _read_each(self, text: bytes) -> bool:
        """Read valid JSON in which values have other types, element by element."""
        elements = decode_each(text.strip(BETWEEN_EVENTS))
        if elements is None:
            return False
        for event, sound in elements:
            self.effort.spend(not sound)
            if event is None or event.ph not in PHASES:
                self._skip(1)
                continue
            self.out.events.append(event)
            self.out.repaired += not sound
        return True

    def _repaired(self, text: bytes) -> bool:
        self.effort.spend(_REPAIR_COST)
        events, others, bad_utf8 = repaired_events(text) if len(text) <= _MAX_REPAIR_BYTES else ([], 0, False)
        if not events:
            return False
        self.out.events += events
        self.out.bad_utf8 += bad_utf8
        self.out.repaired += not bad_utf8
        self._skip(max(count_events(text) - len(events), others))
        return True

    def _skip(self, count: int) -> None:
        self.out.skipped += count
        self.effort.skip(count, len(self.out.events))

    def _end(self, last: Decoded, tail: bytes, piece: int) -> None:
        """End the events inside `piece`: the rest of the chunk belongs to the tail."""
        self.out.events += last.events
        self.out.tail = tail + self.chunk[self.stops[piece] :]
