"""Trace files of any known format, read into a `Trace`. One format a file; its content decides, not its name."""

from pathlib import Path
from typing import Protocol

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers import kineto, ncu, ncu_report_file, nsys, nsys_report
from tracekit.analyzers.readers.source import MAX_BYTES, Source, open_source
from tracekit.analyzers.trace import Trace


class Reader(Protocol):
    """A module that reads one format."""

    FORMAT: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with `head` (decompressed) is of this format."""

    def read(self, source: Source) -> Trace:
        """Raises InputError when the source holds no usable events."""


READERS: tuple[Reader, ...] = (kineto, ncu, ncu_report_file, nsys)


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace file, the trace of a run folder, a URL (s3://, https://, ...), or stdin (`-`), compressed or not.

    Raises MissingPackageError for a URL without fsspec. Raises InputError when it is missing, empty, of no known
    format, without usable events, or decompresses to more
    than `max_bytes`.
    """
    with open_source(path, max_bytes) as source:
        for reader in READERS:
            if reader.sniff(source.head):
                return reader.read(source)
        if source.path and nsys_report.is_named_so(source.path):
            return nsys_report.read(source.path)
        raise InputError(
            f"{source.name} is not a trace that tracekit reads.",
            f"It begins with {source.head[:16]!r}.",
            f"Known formats: {', '.join(r.FORMAT for r in READERS)}, plain or gzipped.",
        )
