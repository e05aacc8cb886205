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

from tracekit.analyzers.readers.decoded_chunk import read_sound_chunk

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
