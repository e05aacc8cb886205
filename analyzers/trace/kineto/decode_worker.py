"""Decode chunks in a separate process. A message on stdin or stdout is its length in 8 bytes, then its bytes.

Input: the text of a chunk. Output: its `DecodedChunk`, or None if the chunk is damaged, pickled. The process ends when
stdin does.
"""

import gc
import os
import pickle
import signal
import sys
from typing import IO

import msgspec

from tracekit.analyzers.trace.kineto.chunks import Decoded, decode_sound
from tracekit.analyzers.trace.kineto.event_columns import EventColumns, event_columns
from tracekit.analyzers.trace.kineto.salvage import Effort, decode_chunk

LENGTH_BYTES = 8


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(LENGTH_BYTES, "little"))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None if the stream ended."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "little")
    message = stream.read(size)
    return message if len(message) == size else None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its workers
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    gc.disable()
    while (text := receive(sys.stdin.buffer)) is not None:
        try:
            send(answers, pickle.dumps(read_sound_chunk(text), protocol=5))
        except BrokenPipeError:
            return


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
