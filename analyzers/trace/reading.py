"""Read trace files of any known format into a `Trace`. Each format has its own file; content decides, not the name."""

from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from tracekit.analyzers.core import InputError, TracekitError, left_out, plugged
from tracekit.analyzers.trace import execution_trace, ncu, nsys, perfetto, problems, proton
from tracekit.analyzers.trace.kineto import reader as kineto
from tracekit.analyzers.trace.source import MAX_BYTES, Source, open_source
from tracekit.analyzers.trace.trace import Trace


class Reader(Protocol):
    """A module that reads one format."""

    FORMAT: str

    def sniff(self, head: bytes) -> bool:
        """Return whether a file that begins with `head` (decompressed) is of this format."""

    def read(self, source: Source) -> Trace:
        """Read the trace. Raises InputError if the source contains no usable events."""


READERS: tuple[Reader, ...] = (perfetto, proton, kineto, ncu, nsys)


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Read a trace file, the trace of a run folder, a URL (s3://, https://, ...), or stdin (`-`), compressed or not.

    Raises InputError if it is missing, empty, of no known format, too damaged, without usable events, or
    decompresses to more than `max_bytes`. Raises MissingPackageError for a URL without fsspec.
    """
    with open_source(path, max_bytes) as source:
        if execution_trace.sniff(source.head):
            raise InputError(
                f"{source.name} is an execution trace, which contains no times.",
                "It contains the tensors that ops read, and belongs to the trace of a profiler.",
                f"Give it with that trace: tracekit fuse TRACE --execution-trace {source.name}",
            )
        for reader in READERS:
            if reader.sniff(source.head):
                return _with_trailing(reader.read(source), source)
        for reader in plugged("tracekit.readers"):
            if read := _read_by_plugin(reader, source):
                return _with_trailing(read, source)
        if source.path and nsys.has_report_suffix(source.path):
            return nsys.read_report(source.path)
        raise InputError(
            f"{source.name} is not a trace that tracekit reads.",
            f"It begins with {source.head[:16]!r}.",
            f"Known formats: {', '.join(r.FORMAT for r in READERS)}, plain or gzipped.",
        )


def _read_by_plugin(reader: Reader, source: Source) -> Trace | None:
    """Return what an installed package reads; None if the format is another one, or it fails, which costs a line."""
    try:
        return reader.read(source) if reader.sniff(source.head) else None
    except TracekitError:
        raise
    except Exception as error:
        left_out(f"that reads {getattr(reader, 'FORMAT', reader)}", error)
        return None


def _with_trailing(trace: Trace, source: Source) -> Trace:
    """Return the trace with a problem row for bytes after the end of the compressed data."""
    trailing = problems.table([problems.problem("trailing-bytes", source.trailing_bytes)])
    return trace if trailing.empty else replace(trace, problems=problems.concat(trace.problems, trailing))
