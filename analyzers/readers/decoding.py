"""One chunk of JSON text to events: fast when it is sound; when it is not, event by event, repaired or left out."""

from dataclasses import dataclass, field
from itertools import islice

from analyzers.readers.chunking import ARRAY_END, BOUNDARY
from analyzers.readers.events import BROKEN, Event, decode_events
from analyzers.readers.repair import repaired_event

_BETWEEN = b" \t\r\n,"
_FAN_OUT = 16
_END_TRIES = 8
_MAX_REPAIR_BYTES = 1 << 17
_MAX_UNREAD_BYTES = 1 << 22


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
        events = _sound(chunk)
        if events is not None:
            return Decoded(events)
    return _up_to_end(chunk) or _Salvage(chunk).run()


def _sound(text: bytes) -> list[Event] | None:
    try:
        return decode_events(text)
    except BROKEN:
        return None


def _up_to_end(text: bytes) -> Decoded | None:
    for end in islice(ARRAY_END.finditer(text), _END_TRIES):
        events = _sound(text[: end.start(1)].strip(_BETWEEN))
        if events is not None:
            return Decoded(events, tail=text[end.end(1) :])
    return None


class _Salvage:
    """Splits a chunk at what looks like boundaries, and halves (by `_FAN_OUT`) until only broken pieces are left.

    Neighbouring broken pieces are tried together (a boundary may have been inside an event), then one by one.
    """

    def __init__(self, chunk: bytes) -> None:
        self.chunk, self.out = chunk, Decoded()
        cuts = [(m.start() + 1, m.end()) for m in BOUNDARY.finditer(chunk)]
        self.starts = [0, *(end for _, end in cuts)]
        self.stops = [*(start for start, _ in cuts), len(chunk)]

    def run(self) -> Decoded:
        broken: list[int] = []
        spans = [(0, len(self.starts))]
        while spans and self.out.tail is None:
            low, high = spans.pop()
            events = _sound(self._text(low, high).strip(_BETWEEN))
            if events is not None:
                self._mend(broken)
                broken = []
                if self.out.tail is None:
                    self.out.events += events
            elif high - low == 1:
                broken.append(low)
            else:
                step = -(-(high - low) // _FAN_OUT)
                spans += [(i, min(i + step, high)) for i in range(low, high, step)][::-1]
        self._mend(broken)
        return self.out

    def _text(self, low: int, high: int) -> bytes:
        return self.chunk[self.starts[low] : self.stops[high - 1]]

    def _mend(self, broken: list[int]) -> None:
        if not broken:
            return
        joined = self._text(broken[0], broken[-1] + 1)
        ended = _up_to_end(joined)
        events = _sound(joined) if ended is None and len(broken) > 1 else None
        if ended and ended.tail is not None:
            self._end(ended.events, ended.tail, broken[-1])
        elif events is not None:
            self.out.events += events
        else:
            for piece in broken:
                if self.out.tail is None:
                    self._mend_one(piece)

    def _mend_one(self, piece: int) -> None:
        text = self._text(piece, piece + 1)
        if self._repaired(text):
            return
        end = ARRAY_END.search(text)
        if end and self._repaired(text[: end.start(1)]):
            self._end([], text[end.end(1) :], piece)
        elif piece == len(self.starts) - 1 and len(text) < _MAX_UNREAD_BYTES:
            self.out.unread = text
        else:
            self.out.skipped += 1

    def _repaired(self, text: bytes) -> bool:
        event, bad_utf8 = repaired_event(text) if len(text) <= _MAX_REPAIR_BYTES else (None, False)
        if event:
            self.out.events.append(event)
            self.out.bad_utf8 += bad_utf8
            self.out.repaired += not bad_utf8
        return event is not None

    def _end(self, events: list[Event], tail: bytes, piece: int) -> None:
        """The events end inside `piece`: what follows it in the chunk belongs to the tail."""
        self.out.events += events
        self.out.tail = tail + self.chunk[self.stops[piece] :]
