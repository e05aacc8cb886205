"""The result of a comparison."""

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from tracekit.analyzers.core import DEPTH, PARENT, Column, Displayed, Table
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


def _both(name: str, dtype: str, unit: str, meaning: str) -> tuple[Column, Column]:
    """Return a column for A and one for B; `meaning` has {} for their letter."""
    return Column(f"a_{name}", dtype, unit, meaning.format("A")), Column(f"b_{name}", dtype, unit, meaning.format("B"))


_TIMES = (
    *_both("ns", "float64", "ns", "the work's own durations in a step of {0}; 0 where {0} has none"),
    Column("change_ns", "float64", "ns", "B minus A; negative if B is faster"),
)
_BUSY = (
    *_both("busy_ns", "float64", "ns", "share of the busy time of a step of {}: overlapping work shares it"),
    Column("change_busy_ns", "float64", "ns", "B minus A; changes of work sum to the change of the busy time"),
)
_COUNTS = _both("kernels", "float64", "", "device work items per step in {}")
_WORK = (
    *_both("flops", "float64", "FLOP", "FLOPs per step in {}; NaN: none known"),
    *_both("bytes", "float64", "B", "bytes per step in {}; NaN: none known"),
)
_PRECISIONS = _both("precision", "object", "", 'precision with most time in {}; "": unknown')
_MATCH = Column(
    "match",
    "object",
    "",
    "how it was matched: name; type (k-th of its class in the same layer); place (order among the rest); "
    "layer (used in the same layers); work (same FLOPs); only A or only B: not matched",
)

DIFFERENCE = Table(
    "difference",
    "Where a step's time goes in A and in B: own durations by family of op, minus overlap, and idle time by "
    "cause; the rows sum to the latency.",
    Column("kind", "object", "", "busy, overlap or idle"),
    Column(
        "name",
        "object",
        "",
        "family of ops (gemm, attention, ...), or cause of idle time (host, sync, ...); overlap is negative: time that "
        "counts more than once in the families",
    ),
    *_TIMES,
    Column(
        "share", "float64", "", "fraction of the latency's change; negative if it changes in the opposite direction"
    ),
    *_COUNTS,
    *_WORK,
    *_PRECISIONS,
)

COMPARED_LAYERS = Table(
    "compared_layers",
    "Layers of A and B, matched from the roots down, in tree order.",
    *_both("path", "object", "", 'path of the layer in {0}; "": not in {0}'),
    *_both("type", "object", "", "its class in {}"),
    _MATCH,
    PARENT,
    DEPTH,
    *_TIMES,
    *_BUSY,
    *_both("self_ns", "float64", "ns", "own durations of the layer's own kernels in a step of {}"),
    Column("change_self_ns", "float64", "ns", "B minus A"),
    Column("change_self_busy_ns", "float64", "ns", "change of their share of the busy time; sums to the change of it"),
    *_COUNTS,
    *_WORK,
)

_NAMED = (
    *_both("name", "object", "", 'name in {0}; "": not in {0}'),
    _MATCH,
    Column("family", "object", "", 'family of the op: gemm, attention, ...; "": unknown'),
    *_TIMES,
    *_BUSY,
    *_COUNTS,
    *_WORK,
    *_PRECISIONS,
)

COMPARED_OPS = Table(
    "compared_ops", "Ops of A and B that launched work; change_busy_ns sums to the change of the busy time.", *_NAMED
)

COMPARED_KERNELS = Table(
    "compared_kernels",
    "Kernels (and copies and sets) of A and B; change_busy_ns sums to the change of the busy time.",
    *_NAMED,
)
