"""Read Nsight Compute's report files, `.ncu-rep`, with NVIDIA's Python module (the extra `ncu`)."""

from tracekit.analyzers.readers.source import Source
from tracekit.analyzers.trace import Trace

FORMAT = "ncu-rep"

_MAGIC = b"NVR\x00"


def sniff(head: bytes) -> bool:
    return head.startswith(_MAGIC)


def read(source: Source) -> Trace:
    """Read a report. Raises MissingPackageError without the module, and InputError if the report contains no launch."""
    from tracekit.analyzers.readers.ncu_report_file import report_file

    return report_file.read(source)
