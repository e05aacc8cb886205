"""Caches analyzed files in the user's cache folder, so that they need not be read again.

The key of an entry is a hash of the file's content and of the source code that computed the entry, so an edited file or
another version of tracekit never uses a stale entry. An entry that cannot be read is replaced. Errors while writing one
are ignored.
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

from tracekit.analyzers.core import additions
from tracekit.analyzers.trace import store
from tracekit.analyzers.trace.source import MAX_BYTES, RUN_TRACE
from tracekit.analyzers.trace.trace import Trace

LEAST_ROWS = 50_000
"""Number of rows below which reading a trace is as fast as loading it from the cache."""

MOST_BYTES = 2 << 30
"""Limit for the size of all entries together. The least recently used entries are removed first."""

_SUFFIX = ".kept"
_BLOCK_BYTES = 1 << 22
_ABANDONED_SECONDS = 3600
_HERE = Path(__file__).parents[1]

Value = TypeVar("Value")


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Read a trace as `reading.load` does, or load it from the cache."""
    from tracekit.analyzers.trace import reading  # every reader; an answer in the cache needs none

    return recall(path, Trace, lambda: reading.load(path, max_bytes=max_bytes), worth=_is_large)


def recall(
    path: str | Path,
    kind: type[Value],
    make: Callable[[], Value],
    *,
    worth: Callable[[Value], bool],
    options: str = "",
    code: Path = _HERE,
) -> Value:
    """Return the value that `make` computes from the file at `path`, from the cache if possible.

    A computed value is cached if `worth(value)`. `kind` is its type, a dataclass. `options` identifies all other inputs
    of `make`. `code` is a folder of source code, in addition to this package, that affects the value.
    """
    file = Path(path) / RUN_TRACE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        return make()  # A pipe can be read only once.
    try:
        before = _state(file)
        entry = folder() / _name(
            kind.__name__, options, additions(), _content_digest(file), _code_digest(_HERE), _code_digest(code)
        )
    except OSError:
        return make()
    value = _load(entry, kind)
    if value is None:
        value = make()
        with suppress(OSError):
            if worth(value) and _state(file) == before:
                _save(value, entry)
    return value


def _is_large(trace: Trace) -> bool:
    return len(trace.host) + len(trace.device) >= LEAST_ROWS


def _name(*parts: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode()) + _SUFFIX


def folder() -> Path:
    """Return the cache folder: $XDG_CACHE_HOME/tracekit, by default ~/.cache/tracekit."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _load(entry: Path, kind: type[Value]) -> Value | None:
    try:
        value = store.load(entry, kind)
        os.utime(entry)
    except (OSError, store.BadStoreError):
        return None
    return value


def _save(value: Any, entry: Path) -> None:
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = entry.with_name(f"{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            store.save(value, file)
        part.replace(entry)
    finally:
        part.unlink(missing_ok=True)
    _evict(entry.parent)


def _evict(cache_folder: Path) -> None:
    """Remove the least recently used entries over the limit, and partial files that killed processes left."""
    now = time.time()
    for part in cache_folder.glob("*.part"):
        if now - part.stat().st_mtime > _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)
    entries = sorted(((e.stat(), e) for e in cache_folder.glob(f"*{_SUFFIX}")), key=lambda each: -each[0].st_mtime)
    total = 0
    for stat, entry in entries:
        total += stat.st_size
        if total > MOST_BYTES:
            entry.unlink(missing_ok=True)


def _state(file: Path) -> tuple[int, int]:
    """Return the modification time and size of a file, which change when it is written to."""
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


def _content_digest(file: Path) -> str:
    """Return a 128-bit hash of the bytes of the file, compressed or not. Raises OSError if it cannot be read."""
    digest, block = xxhash.xxh3_128(), memoryview(bytearray(_BLOCK_BYTES))
    with file.open("rb", buffering=0) as stream:
        while size := stream.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


@cache
def _code_digest(folder: Path) -> str:
    """Return a hash of the source code in a folder, because other code may compute another value."""
    digest = xxhash.xxh3_128()
    for file in sorted(file for kind in ("*.py", "*.toml") for file in folder.rglob(kind)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
