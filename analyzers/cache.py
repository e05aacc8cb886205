"""A cache of analyzed files in the user's cache folder, so that a second look need not read a file again.

An entry is found by the contents of the file and by the source code that made the entry: an edited file, or another
version of tracekit, is read anew. An entry that cannot be used is replaced; one that cannot be written is left out.
"""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from tracekit.analyzers import readers, store
from tracekit.analyzers.readers.source import MAX_BYTES, RUN_TRACE
from tracekit.analyzers.trace import Trace

LEAST_ROWS = 50_000
"""A smaller trace is read as fast as it is found."""

MOST_BYTES = 2 << 30
"""Limit for all entries together; those that were used longest ago are removed first."""

_SUFFIX = ".kept"
_BLOCK_BYTES = 1 << 22
_ABANDONED_SECONDS = 3600
_HERE = Path(__file__).parent

Value = TypeVar("Value")


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """As `readers.load`, from the cache where the same content was read before."""
    return recall(path, Trace, lambda: readers.load(path, max_bytes=max_bytes), worth=_is_large)


def recall(
    path: str | Path,
    kind: type[Value],
    make: Callable[[], Value],
    *,
    worth: Callable[[Value], bool],
    asked: str = "",
    code: Path = _HERE,
) -> Value:
    """What `make` made of the file when the same was `asked` before, or makes now, and keeps if it is `worth` that.

    `kind` is a dataclass. `code` is the folder of the code that decides, beside this package, what is made.
    """
    file = Path(path) / RUN_TRACE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        return make()  # a pipe can be read but once
    try:
        before = _state(file)
        entry = folder() / _name(kind.__name__, asked, _content_digest(file), _code_digest(_HERE), _code_digest(code))
    except OSError:
        return make()
    value = _kept(entry, kind)
    if value is None:
        value = make()
        with suppress(OSError):
            if worth(value) and _state(file) == before:
                _keep(value, entry)
    return value


def _is_large(trace: Trace) -> bool:
    return len(trace.host) + len(trace.device) >= LEAST_ROWS


def _name(*parts: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode()) + _SUFFIX


def folder() -> Path:
    """Where it is kept: $XDG_CACHE_HOME/tracekit, by default ~/.cache/tracekit."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _kept(entry: Path, kind: type[Value]) -> Value | None:
    try:
        value = store.load(entry, kind)
        os.utime(entry)
    except (OSError, store.BadStoreError):
        return None
    return value


def _keep(value: Any, entry: Path) -> None:
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = entry.with_name(f"{secrets.token_hex(8)}.part")
    try:
        with beside.open("xb") as file:
            store.save(value, file)
        beside.replace(entry)
    finally:
        beside.unlink(missing_ok=True)
    _evict(entry.parent)


def _evict(of: Path) -> None:
    """Remove what was used longest ago, and what a process that was killed left half-written."""
    now = time.time()
    for part in of.glob("*.part"):
        if now - part.stat().st_mtime > _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)
    entries = sorted(((e.stat(), e) for e in of.glob(f"*{_SUFFIX}")), key=lambda each: -each[0].st_mtime)
    kept = 0
    for stat, entry in entries:
        kept += stat.st_size
        if kept > MOST_BYTES:
            entry.unlink(missing_ok=True)


def _state(file: Path) -> tuple[int, int]:
    """Changes when the file is written to."""
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


def _content_digest(file: Path) -> str:
    """A 128-bit hash of all bytes of the file, compressed or not. Raises OSError where it cannot."""
    digest, block = xxhash.xxh3_128(), memoryview(bytearray(_BLOCK_BYTES))
    with file.open("rb", buffering=0) as stream:
        while size := stream.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


@cache
def _code_digest(folder: Path) -> str:
    """A hash of the code in a folder: other code may make something else of a file."""
    digest = xxhash.xxh3_128()
    for file in sorted(file for kind in ("*.py", "*.toml") for file in folder.rglob(kind)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
