"""Read SQLite exports of reports of Nsight Systems (nsys export --type sqlite), of any version."""

from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "Nsight Systems SQLite"
MAGIC = b"SQLite format 3\0"


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(source: Source) -> Trace:
    """Read an export.

    Raises InputError if the file is not an export of Nsight Systems, is too damaged to read, or contains no work.
    """
    from tracekit.analyzers.trace.nsys import reader

    return reader.read(source)
