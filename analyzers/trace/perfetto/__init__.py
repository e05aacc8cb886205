"""Read Perfetto traces (`.pftrace`) that PyTorch, Kineto and Proton write, with Perfetto's own messages (extra
`perfetto`)."""

from tracekit.analyzers.trace.perfetto.packets import looks_like_packets
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "Perfetto trace (.pftrace)"


def sniff(head: bytes) -> bool:
    return looks_like_packets(head)


def read(source: Source) -> Trace:
    """Read a trace. Raises InputError if it contains no work of PyTorch, and MissingPackageError without Perfetto's
    package."""
    from tracekit.analyzers.trace.perfetto import reader

    return reader.read(source)
