"""One chunk of JSON text to events: fast when it is sound; when it is not, event by event, repaired or left out."""

from dataclasses import dataclass, field
from itertools import islice

from tracekit.analyzers.readers.chunking import ARRAY_END, BOUNDARY
from tracekit.analyzers.readers.events import BROKEN, Event, decode_events
from tracekit.analyzers.readers.repair import repaired_event

_BETWEEN = b" \t\r\n,"
_FAN_OUT = 16
_END_TRIES = 8
_MAX_REPAIR_BYTES = 1 << 16
_MAX_FAILURES = 1000
_MAX_UNREAD_BYTES = 1 << 18
_MAX_JOINED = 16


@dataclass
class Decoded:
    """Events of a chunk. `tail`: the text behind the end of the events, None when they go on.

    `unread`: text at the end that is no whole event, to be read with the next chunk (or cut off).
    """

    events: list[Event] = field(default_factory=list)
    tail: bytes | None = None
    unread: bytes = b""
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0


def decode_chunk(chunk: bytes, final: bool) -> Decoded:
    """Never raises. A final chunk is expected to hold the end of the events."""
    if not final:
        events = decode_sound(chunk)
        if events is not None:
            return Decoded(events)
    return _up_to_end(chunk) or _Salvage(chunk, final).run()


def decode_sound(text: bytes) -> list[Event] | None:
    try:
        return decode_events(text)
    except BROKEN:
        return None


def _whole(text: bytes) -> list[Event] | None:
    """As `_sound`, of text that may be a part of an event: an event has a phase."""
    events = decode_sound(text.strip(_BETWEEN))
    return None if events is None or any(not e.ph for e in events) else events


def _up_to_end(text: bytes) -> Decoded | None:
    for end in islice(ARRAY_END.finditer(text), _END_TRIES):
        events = _whole(text[: end.start(1)])
        if events is not None:
            return Decoded(events, tail=text[end.end(1) :])
    return None


class _Salvage:
    """Splits a chunk at what looks like boundaries, and into 16 parts again and again until the broken pieces are left.

    A boundary may have been inside an event: so a broken piece is tried by itself, repaired, then with its neighbours.
    """

    def __init__(self, chunk: bytes, final: bool) -> None:
        self.chunk, self.final, self.out = chunk, final, Decoded()
        cuts = [(m.start() + 1, m.end()) for m in BOUNDARY.finditer(chunk)]
        self.starts = [0, *(end for _, end in cuts)]
        self.stops = [*(start for start, _ in cuts), len(chunk)]

    def run(self) -> Decoded:
        broken: list[int] = []
        spans = [(0, len(self.starts))]
        while spans and not self._done:
            low, high = spans.pop()
            events = _whole(self._text(low, high))
            if events is not None:
                self._mend(broken)
                broken = []
                self.out.events += [] if self._done else events
            elif high - low == 1:
                broken.append(low)
            else:
                step = -(-(high - low) // _FAN_OUT)
                spans += [(i, min(i + step, high)) for i in range(low, high, step)][::-1]
        self._mend(broken)
        return self.out

    @property
    def _done(self) -> bool:
        return self.out.tail is not None

    def _text(self, low: int, high: int) -> bytes:
        return self.chunk[self.starts[low] : self.stops[high - 1]]

    def _mend(self, broken: list[int]) -> None:
        """Neighbouring broken pieces, from the left."""
        at, stop = (broken[0], broken[-1] + 1) if broken else (0, 0)
        while at < stop and not self._done:
            taken = self._mend_one(at) or self._joined(at, stop)
            if not taken and self._may_go_on(at, stop):
                self.out.unread = self._text(at, stop)
                return
            self.out.skipped += not taken
            at += max(taken, 1)

    def _may_go_on(self, at: int, stop: int) -> bool:
        """Whether the pieces may be the beginning of an event that ends in the next chunk (or was cut off)."""
        at_end = stop == len(self.starts) and (at == stop - 1 or not self.final)
        return at_end and self.stops[stop - 1] - self.starts[at] < _MAX_UNREAD_BYTES

    def _mend_one(self, piece: int) -> int:
        """1 when the piece holds an event, perhaps the last one; else 0."""
        text = self._text(piece, piece + 1)
        ended = _up_to_end(text)
        if ended and ended.tail is not None:
            self._end(ended.events, ended.tail, piece)
            return 1
        if self.out.skipped > _MAX_FAILURES:
            return 0
        if self._repaired(text):
            return 1
        for end in islice(ARRAY_END.finditer(text), _END_TRIES):
            if self._repaired(text[: end.start(1)]):
                self._end([], text[end.end(1) :], piece)
                return 1
        return 0

    def _joined(self, low: int, stop: int) -> int:
        """How many pieces from `low` on are one event, perhaps the last one; else 0."""
        if self.out.skipped > _MAX_FAILURES:
            return 0
        for high in range(low + 2, min(low + _MAX_JOINED, stop) + 1):
            text = self._text(low, high)
            ended = _up_to_end(text)
            events = ended.events if ended else _whole(text)
            if events is not None:
                self.out.events += events
                if ended and ended.tail is not None:
                    self._end([], ended.tail, high - 1)
                return high - low
        return 0

    def _repaired(self, text: bytes) -> bool:
        event, bad_utf8 = repaired_event(text) if len(text) <= _MAX_REPAIR_BYTES else (None, False)
        if event is None or not event.ph:
            return False
        self.out.events.append(event)
        self.out.bad_utf8 += bad_utf8
        self.out.repaired += not bad_utf8
        return True

    def _end(self, events: list[Event], tail: bytes, piece: int) -> None:
        """The events end inside `piece`: what follows it in the chunk belongs to the tail."""
        self.out.events += events
        self.out.tail = tail + self.chunk[self.stops[piece] :]
