"""Decode the text of one chunk: at once if it is undamaged, otherwise event by event (see salvage.py)."""

from dataclasses import dataclass, field
from itertools import islice

from tracekit.analyzers.readers.chunking import array_ends
from tracekit.analyzers.readers.events import BROKEN, PHASES, Event, decode_events

BETWEEN_EVENTS = b" \t\r\n,"
END_TRIES = 8


@dataclass
class Decoded:
    """The events of a chunk.

    `tail` is the text after the end of the list of events; None if the list continues. `unread` is text at the end of
    the chunk that is not a whole event and is read together with the next chunk. `repaired`, `bad_utf8` and `skipped`
    count events.
    """

    events: list[Event] = field(default_factory=list)
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
