"""Read profiles of Triton's Proton: trees (`.hatchet`) and timelines (`.chrome_trace`) of kernels in their scopes."""

from tracekit.analyzers.readers.proton.proton_profile import FORMAT, read, sniff

__all__ = ["FORMAT", "read", "sniff"]
