"""The columns of one chunk of a Kineto file, which a worker process sends back."""

import msgspec

from tracekit.analyzers.readers.decode_chunk import Decoded, decode_sound
from tracekit.analyzers.readers.event_columns import EventColumns, event_columns
from tracekit.analyzers.readers.salvage import Effort, decode_chunk


class DecodedChunk(msgspec.Struct):
    """The columns of a chunk's `total` events. The other fields are those of `Decoded`."""

    columns: EventColumns
    total: int
    tail: bytes | None = None
    unread: bytes = b""
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0


def read_chunk(text: bytes, final: bool, effort: Effort) -> DecodedChunk:
    """Read any text. Raises TooDamagedError if the file is too damaged to read on."""
    return _columns(decode_chunk(text, final, effort))


def read_sound_chunk(text: bytes) -> DecodedChunk | None:
    """Read a chunk that is not the final one; None if it is damaged."""
    events = decode_sound(text)
    return None if events is None else _columns(Decoded(events))


def _columns(decoded: Decoded) -> DecodedChunk:
    return DecodedChunk(
        event_columns(decoded.events),
        len(decoded.events),
        decoded.tail,
        decoded.unread,
        decoded.repaired,
        decoded.bad_utf8,
        decoded.skipped,
    )
