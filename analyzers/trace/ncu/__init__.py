"""Read reports of Nsight Compute: CSV (`ncu --csv --page raw` or `--page details`), and its own files, `.ncu-rep`."""

import re

from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "ncu, ncu-rep"

_MAGIC = b"NVR\x00"
HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,[^\r\n]*Kernel Name', re.MULTILINE)


def sniff(head: bytes) -> bool:
    return head.startswith(_MAGIC) or HEADER.search(head) is not None


def read(source: Source) -> Trace:
    """Read a report. Raises InputError if no launch can be read, and MissingPackageError for a .ncu-rep file without
    NVIDIA's module."""
    if source.head.startswith(_MAGIC):
        from tracekit.analyzers.trace.ncu import report_file

        return report_file.read(source)
    from tracekit.analyzers.trace.ncu import reader

    return reader.read(source)
