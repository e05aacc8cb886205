"""Read CSV reports of Nsight Compute (`ncu --csv --page raw` or `--page details`)."""

from tracekit.analyzers.counters import csv_lines
from tracekit.analyzers.readers.source import Source
from tracekit.analyzers.trace import Trace

FORMAT = "ncu"


def sniff(head: bytes) -> bool:
    return csv_lines.has_header(head)


def read(source: Source) -> Trace:
    """Read a report. Raises InputError if no launch can be read."""
    from tracekit.analyzers.readers.ncu import csv_report

    return csv_report.read(source)
