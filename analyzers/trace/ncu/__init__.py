"""Read CSV reports of Nsight Compute (`ncu --csv --page raw` or `--page details`)."""

from tracekit.analyzers.trace.ncu import pages
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "ncu"


def sniff(head: bytes) -> bool:
    return pages.has_header(head)


def read(source: Source) -> Trace:
    """Read a report. Raises InputError if no launch can be read."""
    from tracekit.analyzers.trace.ncu import reader

    return reader.read(source)
