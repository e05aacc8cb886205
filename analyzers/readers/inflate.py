"""Streamed gzip decompression, bounded in memory and in total, that keeps what a damaged stream still yields."""

from collections.abc import Callable, Iterator

from isal import isal_zlib

from tracekit.analyzers.errors import InputError

MAGIC = b"\x1f\x8b"
_OUTPUT_BYTES = 1 << 22
_GZIP_WINDOW = 31


def inflate(blocks: Iterator[bytes], limit: int, damaged: Callable[[str], None]) -> Iterator[bytes]:
    """Decompressed blocks. `damaged` is told why the stream ended early.

    Raises InputError as soon as more than `limit` bytes come out.
    """
    members, total = _Members(), 0
    try:
        for out in members.decompress(blocks):
            total += len(out)
            if total > limit:
                raise _too_large(limit)
            yield out
    except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
        return damaged("its gzip data is damaged")
    return damaged("its gzip data ends early") if members.open else None


class _Members:
    """The concatenated members of a gzip file. `open`: inside one."""

    def __init__(self) -> None:
        self.open = False

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
                        return  # padding after the last member
                    member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)


def _too_large(limit: int) -> InputError:
    return InputError(
        f"The trace is larger than {limit / 2**30:.3g} GiB when decompressed.",
        "A small file that decompresses to so much is usually not a trace.",
        "If it is one, raise the limit: --max-unpacked GIB, or max_bytes in Python.",
    )
