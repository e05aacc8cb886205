"""The result of a comparison."""

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from tracekit.analyzers.core import Displayed, tables
from tracekit.analyzers.results import Source


@dataclass(frozen=True)
class Side:
    """One of the two runs. Times are means of one step and one device."""

    name: str
    """Name of its file or folder."""
    source: Source
    steps: int
    """Number of steps in the trace; 1 for a trace without steps."""
    latency_ns: float
    latency_from: Literal["unprofiled", "estimated", "trace"]
    """unprofiled: timed (or simulated) without a profiler; estimated: that in the trace, without the time that is
    estimated for the profiler; trace: that in the trace."""
    spread_ns: tuple[float, float] | None
    """10th and 90th percentile of the unprofiled latency."""
    work_ns: float
    """Sum of the durations of all work; overlapping work counts in full."""
    busy_ns: float
    """Time in which the device runs any work."""
    kernels: float
    flops: float
    """NaN if none are known."""
    graph_share: float
    """Fraction of kernels that CUDA graphs launched, 0 to 1."""


@dataclass(frozen=True)
class Comparison(Displayed):
    """A comparison of B with A. All tables are for one step; changes are B minus A."""

    a: Side
    b: Side
    difference: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    ops: pd.DataFrame = field(repr=False)
    kernels: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    """Sentences on why the two are not fully comparable."""

    @property
    def speedup(self) -> float:
        """Latency of A over latency of B; B is faster if it is above 1."""
        return self.a.latency_ns / self.b.latency_ns

    @property
    def change_ns(self) -> float:
        return self.b.latency_ns - self.a.latency_ns

    @property
    def within_spread(self) -> bool:
        """Whether each latency lies between the 10th and 90th percentile of the other run's."""
        if self.a.spread_ns is None or self.b.spread_ns is None:
            return False
        pairs = ((self.a.latency_ns, self.b.spread_ns), (self.b.latency_ns, self.a.spread_ns))
        return all(low <= latency <= high for latency, (low, high) in pairs)


_TABLES = tables(__file__)
DIFFERENCE = _TABLES["difference"]
COMPARED_LAYERS = _TABLES["compared_layers"]
COMPARED_OPS = _TABLES["compared_ops"]
COMPARED_KERNELS = _TABLES["compared_kernels"]
