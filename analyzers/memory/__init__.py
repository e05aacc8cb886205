"""Device memory over time, by kind, layer and line of code, from a trace or a memory snapshot."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.memory.snapshot import DeviceMemory, bytes_over_time, read_snapshot, summarize
    from tracekit.analyzers.memory.timeline import KINDS, MemoryOfRun, memory_timeline
else:
    __getattr__ = lazily(__name__, __file__)
