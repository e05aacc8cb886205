"""One chunk of a Kineto file as columns: what a process hands back of its share of the file."""

from dataclasses import dataclass

from tracekit.analyzers.readers.decoding import Decoded, decode_chunk, decode_sound
from tracekit.analyzers.readers.event_columns import EventColumns, event_columns


@dataclass
class Part:
    """Columns of a chunk's `total` events, and what `Decoded` says of the chunk."""

    columns: EventColumns
    total: int
    tail: bytes | None = None
    unread: bytes = b""
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0


def read_part(text: bytes, final: bool) -> Part:
    """Of any text; never raises."""
    return _part(decode_chunk(text, final))


def sound_part(text: bytes) -> Part | None:
    """Of a chunk that is not the final one; None when it is not sound."""
    events = decode_sound(text)
    return None if events is None else _part(Decoded(events))


def _part(of: Decoded) -> Part:
    columns = event_columns(of.events)
    return Part(columns, len(of.events), of.tail, of.unread, of.repaired, of.bad_utf8, of.skipped)
