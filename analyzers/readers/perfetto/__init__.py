"""Read Perfetto traces (`.pftrace`) that PyTorch, Kineto and Proton write, with Perfetto's own messages (extra
`perfetto`)."""

from tracekit.analyzers.readers.perfetto.perfetto_trace import FORMAT, read, sniff

__all__ = ["FORMAT", "read", "sniff"]
