"""Traces that were read before, kept beside the user's other caches, so that the second look need not read again.

A trace is found by what the file holds and by the readers' source code: an edited file, or another version of
tracekit, is read anew. What cannot be used is replaced, and what cannot be written is not cached.
"""

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import xxhash

from analyzers import readers, trace_store
from analyzers.readers.source import MAX_BYTES, RUN_TRACE
from analyzers.trace import Trace

LEAST_ROWS = 50_000
"""A smaller trace is read as fast as it is found."""

MOST_BYTES = 2 << 30
"""Of all cached traces together; those not used for longest go first."""

_SUFFIX = ".trace"
_CODE = ("*.py", "readers/**/*.py", "problems/**/*.py")
_BLOCK_BYTES = 1 << 22


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """As `readers.load`, from the cache where the same content was read before."""
    file = Path(path) / RUN_TRACE if Path(path).is_dir() else Path(path)
    try:
        before = _state(file)
        entry = folder() / f"{_code_digest()}-{_content_digest(file)}{_SUFFIX}"
    except OSError:
        return readers.load(path, max_bytes=max_bytes)
    trace = _cached(entry)
    if trace is None:
        trace = readers.load(path, max_bytes=max_bytes)
        if len(trace.host) + len(trace.device) >= LEAST_ROWS and _state(file) == before:
            with suppress(OSError):
                _keep(trace, entry)
    return trace


def folder() -> Path:
    """Where cached traces are: $XDG_CACHE_HOME/tracekit, by default ~/.cache/tracekit."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _cached(entry: Path) -> Trace | None:
    try:
        trace = trace_store.load(entry)
        os.utime(entry)
    except (OSError, trace_store.BadStoreError):
        return None
    return trace


def _keep(trace: Trace, entry: Path) -> None:
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as file:
        try:
            trace_store.save(trace, file)
            file.close()
            Path(file.name).replace(entry)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _evict(entry.parent)


def _evict(of: Path) -> None:
    entries = sorted(((e.stat(), e) for e in of.glob(f"*{_SUFFIX}")), key=lambda found: -found[0].st_mtime)
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
def _code_digest() -> str:
    """What the readers are: a trace read by other code may be another trace."""
    root, digest = Path(__file__).parent, xxhash.xxh3_64()
    for file in sorted(file for pattern in _CODE for file in root.glob(pattern)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
