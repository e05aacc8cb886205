"""Open a file, a run folder, a URL or stdin, compressed or not, as a stream of bytes."""

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from isal import isal_zlib

from tracekit.analyzers.core import UNPACKED, InputError, limits, progressed, reading
from tracekit.analyzers.trace.remote import is_url, open_url, shown

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


RUN_TRACE = "trace.json.gz"
"""The name of the trace inside a run folder."""

MAX_BYTES = UNPACKED.value
_BLOCK_BYTES = 1 << 22
_GZIP_BLOCK_BYTES = 1 << 16
_PIPE_SECONDS = 10
_T = TypeVar("_T")
_MEGABYTE = 10**6
_NAME_A_FILE = "Name a file, a run's folder, a URL, or - for standard input."


class Source:
    """The decompressed bytes of one input.

    `head` is its beginning after blocks of blanks, from which the format is recognized; `blocks()` yields it and all
    that follows, once. `path` is None for
    stdin, pipes and URLs. After reading, `damage` says why the bytes ended early ("" if they did not), and
    `trailing_bytes` counts bytes after the end of the compressed data.
    """

    def __init__(self, name: str, path: Path | None, stream: BinaryIO, max_bytes: int) -> None:
        self.name, self.path, self._stream, self._end = name, path, stream, StreamEnd()
        self._blocks = _decompressed(stream, max_bytes, self._end)
        self.head = next((block for block in self._blocks if not block.isspace()), b"")

    def blocks(self) -> Iterator[bytes]:
        """Yield all blocks, and tell who watches how much of the file is read."""
        blocks = chain([self.head], self._blocks)
        return self._watched(blocks, self.path.stat().st_size) if self.path else blocks

    def _watched(self, blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
        what = f"reading {Path(self.name).name}, MB"
        for block in blocks:
            progressed(what, self._stream.tell() // _MEGABYTE, size // _MEGABYTE)
            yield block
        progressed(what, size // _MEGABYTE, size // _MEGABYTE)

    def decoded(self, decode: Callable[[bytes], _T]) -> _T:
        """Return what `decode` makes of all bytes. Raises InputError if they, or their memory, exceed a limit."""
        data = bytearray()
        for block in self.blocks():
            data += block
            limits.DOCUMENT.check(len(data), self.name)
        with limits.decoding(self.name, self.path.stat().st_size if self.path else len(data)):
            return decode(bytes(data))

    @property
    def damage(self) -> str:
        return self._end.damage

    @property
    def trailing_bytes(self) -> int:
        return self._end.trailing_bytes


def _decompressed(stream: BinaryIO, max_bytes: int, end: StreamEnd) -> Iterator[bytes]:
    first = stream.read(_GZIP_BLOCK_BYTES)
    if not first.startswith(MAGIC):
        return chain([first] if first else [], iter(lambda: stream.read(_BLOCK_BYTES), b""))
    return inflate(chain([first], iter(lambda: stream.read(_GZIP_BLOCK_BYTES), b"")), max_bytes, end)


@contextmanager
def open_source(path: str | Path, max_bytes: int) -> Iterator[Source]:
    """Open a file, a run folder (its trace), a URL, or "-" (stdin).

    Raises InputError if it cannot be read or is empty, and MissingPackageError for a URL without fsspec.
    """
    if str(path) == "-":
        yield _checked(Source("stdin", None, sys.stdin.buffer, max_bytes))
        return
    if is_url(path):
        with open_url(str(path)) as remote:
            yield _checked(Source(shown(str(path)), None, remote, max_bytes))
        return
    file = trace_file(Path(path))
    with reading(f"{file} cannot be read.", "Check its permissions."):
        stream, is_file = _opened(file)
    with stream:
        yield _checked(Source(str(file), file if is_file else None, stream, max_bytes))


def _opened(file: Path) -> tuple[BinaryIO, bool]:
    """Return a stream of the file, and whether it is a regular one. Opening a pipe times out after `_PIPE_SECONDS`."""
    kind = file.stat().st_mode
    if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
        raise InputError(f"{file} is a device.", "A device is not a trace, and may never end.", _NAME_A_FILE)
    if not stat.S_ISFIFO(kind):
        return file.open("rb"), True
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    if not select.select([handle], [], [], _PIPE_SECONDS)[0]:
        os.close(handle)
        raise InputError(
            f"{file} is an empty pipe.",
            f"Nothing was written to it for {_PIPE_SECONDS} s.",
            "Start its writer first, or name a file.",
        )
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb"), False


def trace_file(path: Path) -> Path:
    """Return the path of a trace, or of that in a run's folder. Raises InputError if there is none."""
    file = path / RUN_TRACE if path.is_dir() else path
    if file.exists():
        return file
    if path.is_dir() and len(list(path.glob("*.json*"))) > 1:
        raise InputError(
            f"{path} is a folder of several traces.",
            "One is analyzed at a time.",
            f"For the ranks of a job: tracekit ranks {path}",
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder without a {RUN_TRACE}.", *_runs_within(path))
    raise InputError(
        f"{path} does not exist.",
        "No file or folder has this name.",
        "Check the path, or record a trace: tracekit profile --help.",
    )


def _runs_within(folder: Path) -> tuple[str, str]:
    """Say which runs the folder contains, and what to name instead."""
    runs = [trace.parent for levels in ("*", "*/*") for trace in sorted(folder.glob(f"{levels}/{RUN_TRACE}"))]
    if not runs:
        return "", "Name a trace file, or a folder of a run; tracekit profile, run and capture write one."
    ranks = f", or compare all: tracekit ranks {folder}" if runs[0].name.startswith("rank-") else ""
    return f"It contains {len(runs)} runs.", f"Name one of them, such as {runs[0]}{ranks}."


def _checked(source: Source) -> Source:
    if source.head.strip():
        return source
    why = f"Nothing could be decompressed: {source.damage}." if source.damage else "It contains no data."
    raise InputError(f"{source.name} is empty.", why, "Export the trace again; the profiler writes it when it stops.")
