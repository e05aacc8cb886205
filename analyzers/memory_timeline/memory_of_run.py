"""Device memory of a run, and the optimizations that lower its peak."""

from dataclasses import dataclass, field

from tracekit.analyzers.memory_timeline.timeline import MemoryTimeline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.prediction.values import Remedy


@dataclass(frozen=True)
class MemoryOfRun:
    """Device memory of a run."""

    name: str
    timeline: MemoryTimeline
    held: Memory | None
    """Memory of the step by kind, from which remedies are predicted; None: unknown."""
    capacity_bytes: int
    """Memory of the GPU; 0: unknown."""
    modelled: bool
    remedies: tuple[Remedy, ...] = field(default=())
    """Single optimizations that lower the peak, lowest peak first."""
