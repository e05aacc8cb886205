"""The limits within which files that others wrote are read, and the environment variable that raises each of them."""

import gzip
import os
import pickle
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, current_thread, main_thread
from typing import Annotated, BinaryIO, TypeVar

import msgspec

from tracekit.analyzers.core.errors import InputError, TracekitError

INT64_MAX = 2**63 - 1
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=INT64_MAX)]
"""Integers of a file: Python has no largest integer, but columns and formulas have."""
LARGEST = 2.0**62
Amount = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
"""A time, or a number of bytes, FLOPs or calls, of which several can be added in an int64."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""A number with which formulas can calculate without overflow."""
PositiveAmount = Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]

MOST_ELEMENTS = 2**50
"""Number of elements that no tensor has: a petabyte of them."""

DAMAGE = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, EOFError),
    *(msgspec.MsgspecError, zlib.error, pickle.UnpicklingError),
)
"""What decoding raises if the content is not what the decoder expects. (Texts that are not UTF-8 are a ValueError.)"""

_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 20
_MEMORY_PER_BYTE = 100
"""Memory of what a file's byte becomes, at most: sound JSON becomes 5 to 10 bytes, compressed to a twentieth before."""

_decoding = RLock()
_T = TypeVar("_T")


class Limit(msgspec.Struct, frozen=True):
    """The largest number of something in one file. The environment variable, if set, replaces the default."""

    variable: str
    default: int
    unit: str
    otherwise: str = ""
    """Other ways to raise it."""

    @property
    def value(self) -> int:
        text = os.environ.get(self.variable, "")
        if text and not text.isdecimal():
            raise TracekitError(
                f"{self.variable} is {text[:40]!r}.", "It is a limit.", f"Set it to a number of {self.unit}."
            )
        return int(text or self.default)

    def check(self, count: int, name: object) -> None:
        """Raise InputError if `name`, a file, has more than the limit."""
        if count > self.value:
            raise self.exceeded(name)

    def exceeded(self, name: object, most: int = 0) -> InputError:
        return InputError(
            f"{name} has more than {most or self.value:,} {self.unit}.",
            "That is usually damage, or made to exhaust this machine.",
            f"If it is sound, raise the limit: {self.otherwise}set {self.variable} to a larger number.",
        )


UNPACKED = Limit(
    "TRACEKIT_LIMIT_UNPACKED", 16 << 30, "bytes when decompressed", "--max-unpacked GIB, max_bytes in Python, or "
)
DOCUMENT = Limit("TRACEKIT_LIMIT_DOCUMENT", 1 << 30, "bytes")
"""Bytes, decompressed, of a file that is decoded as a whole, not in pieces as traces are."""
SETTINGS = Limit("TRACEKIT_LIMIT_SETTINGS", 1 << 20, "bytes")
"""The same of a file that people write, such as that of a GPU (TOML is decoded slowly) or run.json."""
MEMORY = Limit("TRACEKIT_LIMIT_MEMORY", 512 << 20, "bytes in memory when decoded")
"""Applies to small files. A large one may take 100 times its size."""
OBJECTS = Limit("TRACEKIT_LIMIT_OBJECTS", 10_000_000, "objects")


def decoded(path: Path, decode: Callable[[bytes], _T], hint: str, limit: Limit = DOCUMENT) -> _T:
    """Return what `decode` makes of the bytes of a file, decompressed if it is gzip.

    Raises InputError, which ends with the hint, if the file cannot be read or is damaged, and one that names the limit
    that it exceeds.
    """
    what = f"{path} cannot be read."
    try:
        if path.exists() and not path.is_file():
            raise InputError(what, "It is not a file.", hint)
        with path.open("rb") as file, decoding(path, path.stat().st_size):
            return decode(_unpacked(file, path, limit))
    except OSError as error:
        raise InputError(what, f"{error.strerror or error}.", hint) from error
    except DAMAGE as error:
        raise InputError(what, f"It is damaged: {error or type(error).__name__}.", hint) from error


@contextmanager
def decoding(name: object, size: int) -> Iterator[None]:
    """Bound the memory that decoding a file of `size` bytes takes, and let SIGTERM end the process at once.

    One call may decode for long, during which Python would not handle the signal. Nothing may be half-written then.
    Raises InputError if the memory does not suffice. Memory is bounded on Linux only.
    """
    most = max(MEMORY.value, _MEMORY_PER_BYTE * size)
    with _decoding, _ended_at_once(), _bounded_memory(most):
        try:
            yield
        except MemoryError as error:
            raise MEMORY.exceeded(name, most) from error


def _unpacked(file: BinaryIO, path: Path, limit: Limit) -> bytes:
    first = file.read(len(_GZIP))
    file.seek(0)
    stream = gzip.GzipFile(fileobj=file) if first == _GZIP else file
    data, most = bytearray(), limit.value
    while block := stream.read(_BLOCK_BYTES):
        data += block
        if len(data) > most:
            raise limit.exceeded(path)
    return bytes(data)


@contextmanager
def _ended_at_once() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _bounded_memory(size: int) -> Iterator[None]:
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + size
    if soft not in (-1, resource.RLIM_INFINITY):
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
