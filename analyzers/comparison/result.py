"""What a comparison holds."""

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from tracekit.analyzers.display import Displayed
from tracekit.analyzers.results import Source


@dataclass(frozen=True)
class Side:
    """One of the two runs. Times are means of one step and one device."""

    name: str
    """What people call it: the name of its file or folder."""
    source: Source
    steps: int
    """Those in the trace; 1 for the whole of a trace that marks none."""
    latency_ns: float
    latency_from: Literal["unprofiled", "trace"]
    """Timed (or simulated) without a profiler, or as in the trace."""
    spread_ns: tuple[float, float] | None
    """10th and 90th percentile of the unprofiled latency."""
    work_ns: float
    """Sum of the durations of all work; what overlaps counts in full each time."""
    busy_ns: float
    """Time in which the device works on anything."""
    kernels: float
    flops: float
    """NaN: none known."""
    graph_share: float
    """Part of the kernels that CUDA graphs launched."""


@dataclass(frozen=True)
class Comparison(Displayed):
    """B beside A. Every table is of one step; changes are B less A."""

    a: Side
    b: Side
    difference: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    ops: pd.DataFrame = field(repr=False)
    kernels: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    """What keeps the two from being comparable in every respect."""

    @property
    def speedup(self) -> float:
        """Latency of A over that of B: above 1, B is faster."""
        return self.a.latency_ns / self.b.latency_ns

    @property
    def change_ns(self) -> float:
        return self.b.latency_ns - self.a.latency_ns

    @property
    def within_spread(self) -> bool:
        """Each latency is one that steps of the other run take, too: it lies between the percentiles."""
        if self.a.spread_ns is None or self.b.spread_ns is None:
            return False
        pairs = ((self.a.latency_ns, self.b.spread_ns), (self.b.latency_ns, self.a.spread_ns))
        return all(low <= latency <= high for latency, (low, high) in pairs)
