"""Decompress gzip as a stream, with bounds on memory and total size. A damaged stream is read up to the damage."""

from collections.abc import Iterator
from itertools import chain

import msgspec
from isal import isal_zlib

from tracekit.analyzers.limits import UNPACKED

MAGIC = b"\x1f\x8b"
_OUTPUT_BYTES = 1 << 22
_GZIP_WINDOW = 31


class StreamEnd(msgspec.Struct):
    """State at the end of a stream, known after reading it.

    `damage` says why the data ended early, "" if they did not. `trailing_bytes` counts bytes after the compressed data,
    other than padding with zeros.
    """

    damage: str = ""
    trailing_bytes: int = 0


def inflate(blocks: Iterator[bytes], limit: int, end: StreamEnd) -> Iterator[bytes]:
    """Yield decompressed blocks, and record in `end` why the stream ended early and how much follows its end.

    Raises InputError as soon as the output exceeds `limit` bytes.
    """
    members, total = _Members(), 0
    try:
        for out in members.decompress(blocks):
            total += len(out)
            if total > limit:
                raise UNPACKED.exceeded("The trace", limit)
            yield out
    except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
        end.damage = "its gzip data is damaged"
        return
    end.damage = "its gzip data ends early" if members.open else ""
    end.trailing_bytes = members.trailing_bytes


class _Members:
    """The concatenated members of a gzip file. `open` says whether the stream ended inside one."""

    def __init__(self) -> None:
        self.open = False
        self.trailing_bytes = 0

    def decompress(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        for block in blocks:
            rest, full = block, False
            while rest or full:
                self.open = True
                out = member.decompress(rest, _OUTPUT_BYTES)
                if out:
                    yield out
                rest, full = member.unconsumed_tail, len(out) == _OUTPUT_BYTES
                if member.eof:
                    self.open, full, rest = False, False, member.unused_data
                    if rest and not rest.startswith(MAGIC[: len(rest)]):
                        self.trailing_bytes = _without_padding(chain([rest], blocks))
                        return
                    member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)


def _without_padding(blocks: Iterator[bytes]) -> int:
    """Return the number of bytes, or 0 if all of them are 0."""
    size, padding = 0, True
    for block in blocks:
        size += len(block)
        padding = padding and not block.strip(b"\0")
    return 0 if padding else size
