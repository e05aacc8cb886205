"""The result of an analysis: small frozen values, and the tables of tables.py."""

from typing import Literal

import msgspec
import pandas as pd

from tracekit.analyzers.core import Displayed, Interval
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import tables
from tracekit.analyzers.results.measured import Verification
from tracekit.analyzers.results.values import Considered, MemoryFit, PlanStep, PredictedBaseline, Recommendation
from tracekit.analyzers.trace import CaptureInfo, Latency

Runtime = Literal["vllm", "sglang", "training", ""]
"""A serving engine, training, or "" for an inference script."""


Bound = Literal["compute", "memory", "launch", "latency", "transfer"]


BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch", "latency", "transfer")


class BoundShares(msgspec.Struct, frozen=True):
    """Shares of a step's time by bound, which sum to 1. Idle time of the device is launch.

    Transfer is exposed time of copies and communication, while nothing else runs on the device. Unknown is work without
    a known cost, and everything in a CPU-only trace, because the roofs of CPUs are unknown.
    """

    compute: float
    memory: float
    launch: float
    latency: float
    transfer: float
    unknown: float = 0.0

    def with_idle(self, idle: float) -> "BoundShares":
        """Return the shares of the same work if this fraction of the time is idle."""
        rest = 1.0 - self.launch
        if not rest:
            return self
        scaled = {name: getattr(self, name) * (1.0 - idle) / rest for name in (*BOUNDS, "unknown")}
        return BoundShares(**{**scaled, "launch": idle})

    def ranked(self) -> list[tuple[str, float]]:
        """Return pairs (bound, share), largest first; unknown only if it is not 0."""
        shares = [(name, getattr(self, name)) for name in BOUNDS]
        return sorted([*shares, *([("unknown", self.unknown)] if self.unknown else [])], key=lambda pair: -pair[1])


class CounterSource(msgspec.Struct, frozen=True):
    """The part of the work whose FLOPs and bytes Nsight Compute measured."""

    launches: int
    """Number of measured kernel launches."""
    unmatched: int
    """Number of measured launches that match no kernel of the trace."""
    matched: int
    """Number of kernels of the trace with measured FLOPs or bytes."""
    kernels: int
    """Number of kernels of the trace."""
    busy_share: float
    """Fraction of the busy time in matched kernels, 0 to 1."""


Kind = Literal["measured", "modelled", "imported"]


class Source(msgspec.Struct, frozen=True):
    """The origin of an analysis's numbers."""

    kind: Kind
    """measured and modelled: captured by tracekit; imported: by another tool."""
    format: str
    device: Literal["gpu", "cpu"]
    """The device whose busy time is analyzed; cpu for a trace without device work."""
    device_name: str
    """Name as the driver reports it; "" if it is not recorded."""
    gpu: GPU | None
    """The GPU that ran the work or was modelled, whose roofs are used. None if it is unknown; then there are no roofs.
    """
    precision: str = ""
    layers_from: Literal[
        "tracekit ranges", "nn.Module events", "record_function ranges", "compiled regions", "none"
    ] = "none"
    capture: CaptureInfo | None = None
    zero_ns: int = 0
    """Time 0 of the analysis in ns, on the clock of the events in the trace file."""
    counters: CounterSource | None = None
    """None if all FLOPs and bytes are counted, not measured."""
    trains: bool = False
    """Whether the run trains: it has a backward pass or steps of an optimizer."""
    runtime: Runtime = ""
    program: str = ""
    """The script or the binary that ran, if the trace names it."""
    requests: int = 0
    """Requests in a step, as the ranges of a serving engine name them; 0 if none does."""


class StepLatency(msgspec.Struct, frozen=True):
    """Time of one step."""

    unprofiled: Latency | None
    """Latency without a profiler, measured or simulated; None if there is none."""
    profiled_us: float
    """Wall time of a step in the trace: the median, or the mean if long stalls lie between typical steps."""


class DeviceTime(msgspec.Struct, frozen=True):
    """Time that the devices spend on each kind of work, summed over devices. Overlapping kinds each count in full."""

    span_ns: int
    """Time from the start of a device's first work to the end of its last."""
    compute_ns: int
    copy_ns: int
    communication_ns: int
    exposed_communication_ns: int
    """Communication while the device computes nothing; the rest is hidden behind computation. The bound `transfer`
    counts this time and exposed copies."""


class Timeline(msgspec.Struct, frozen=True):
    """When a trace worked, and its steps."""

    wall_ns: int
    busy_ns: int
    idle_ns: int
    steps: pd.DataFrame
    device: DeviceTime | None = None
    """None without device work."""


class Coverage(msgspec.Struct, frozen=True):
    """Shares of the busy time that have an op, a layer, and counted FLOPs and bytes."""

    op: float
    layer: float
    cost: float


class Projection(msgspec.Struct, frozen=True):
    """The step's latency on another GPU, modelled from a measured run."""

    gpu: GPU
    latency_us: Interval
    busy_us: Interval
    reason: str
    memory_bytes: int | None = None
    """Peak memory on that GPU; None if it is unknown."""
    memory_at_least: bool = False
    """Whether only a lower bound of the peak is known."""

    @property
    def fits(self) -> bool:
        """Whether the step fits in the GPU's memory; True if its peak is unknown."""
        return self.memory_bytes is None or self.memory_bytes <= self.gpu.memory_bytes


_TABLES = (
    *("layers", "layer_types", "layer_parts", "layer_ops", "phases", "steps", "ops", "kernels", "ranges", "gaps"),
    *("idle_causes", "problems"),
)


MISSING = 0.15
"""Smallest fraction of a step that is said not to be in the trace."""
START_UP_ONLY = 0.6
"""One-time share of a recording from which it is said to be mostly start-up."""


class Analysis(Displayed, msgspec.Struct, frozen=True):
    """The analysis of one trace."""

    source: Source
    latency: StepLatency
    timeline: Timeline
    work: pd.DataFrame
    layers: pd.DataFrame
    layer_types: pd.DataFrame
    ops: pd.DataFrame
    kernels: pd.DataFrame
    phases: pd.DataFrame
    coverage: Coverage
    bound: BoundShares
    problems: pd.DataFrame
    layer_ops: pd.DataFrame = msgspec.field(default_factory=tables.LAYER_OPS.empty)
    layer_parts: pd.DataFrame = msgspec.field(default_factory=tables.LAYER_PARTS.empty)
    ranges: pd.DataFrame = msgspec.field(default_factory=tables.RANGES.empty)
    counters_comparison: pd.DataFrame = msgspec.field(default_factory=tables.COUNTERS_COMPARISON.empty)
    gaps: pd.DataFrame = msgspec.field(default_factory=tables.GAPS.empty)
    idle_causes: pd.DataFrame = msgspec.field(default_factory=tables.IDLE_CAUSES.empty)
    host_causes: pd.DataFrame = msgspec.field(default_factory=tables.HOST_CAUSES.empty)
    host_spans: pd.DataFrame = msgspec.field(default_factory=tables.HOST_SPANS.empty)
    counts: pd.DataFrame = msgspec.field(default_factory=tables.COUNTS.empty)
    places: pd.DataFrame = msgspec.field(default_factory=tables.PLACES.empty)
    set_apart: pd.DataFrame = msgspec.field(default_factory=tables.SET_APART.empty)
    projection: Projection | None = None
    recommendations: tuple[Recommendation, ...] = ()
    considered: tuple[Considered, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    """The best combination of a few optimizations, each with its own gain; those for throughput are last."""
    fusion_plan: pd.DataFrame = msgspec.field(default_factory=tables.FUSION_PLAN.empty)
    predicted_work: pd.DataFrame = msgspec.field(default_factory=tables.PREDICTED_WORK.empty)
    memory_fit: MemoryFit | None = None
    """The remedies that make the run fit in its GPU's memory; None if it fits, or its peak is unknown."""
    predicted_from: PredictedBaseline | None = None
    """The step that predictions start from; None if nothing can be predicted."""
    verified: Verification | None = None
    """Measurements of optimizations of this run; None without any."""
    file: str = ""
    """Name of the trace's file, or of its run's folder; "" for a trace that is in neither."""

    @property
    def steps(self) -> pd.DataFrame:
        """The table STEPS, with one row per step of the trace."""
        return self.timeline.steps

    def __repr__(self) -> str:
        """Return a few lines: where it ran, how long a step takes, what bounds it, and the tables with rows."""
        source, filled = self.source, [name for name in _TABLES if len(getattr(self, name))]
        step = self.latency.unprofiled.median_us if self.latency.unprofiled else self.latency.profiled_us
        bound, share = self.bound.ranked()[0]
        where = source.device_name or source.device
        lines = (
            f"<tracekit.Analysis: {source.kind}, {where}, {_counted(len(self.steps), 'step')} of {step / 1e3:,.2f} ms",
            f"bound: {bound} {share:.0%}; {_counted(len(self.recommendations), 'recommendation')}; "
            f"{_counted(len(self.problems), 'problem')}",
            f"tables: {', '.join(filled)}>",
        )
        return "\n  ".join(lines)

    @property
    def missing_share(self) -> float:
        """Fraction of a step that the trace does not hold, 0 to 1: a profiler only adds time, yet its steps are shorter
        than those without it."""
        without = self.latency.unprofiled
        return max(0.0, 1 - self.latency.profiled_us / without.median_us) if without else 0.0

    @property
    def one_time_share(self) -> float:
        """Fraction of the recorded time of the steps that was set apart as start-up or a pause, 0 to 1."""
        if self.set_apart.empty:
            return 0.0
        cut = self.set_apart[
            self.set_apart["kind"].isin([tables.START_UP, tables.PAUSE, tables.EARLIER_WORK]).to_numpy()
        ]
        place = cut["start_ns"] - (cut["duration_ns"].cumsum() - cut["duration_ns"])
        steps = self.timeline.steps
        begin, end = int(steps["start_ns"].min()), int((steps["start_ns"] + steps["wall_ns"]).max())
        inside = (place >= begin) & (place <= end) & (cut["kind"] != tables.EARLIER_WORK)
        once = float(cut.loc[inside, "duration_ns"].sum())
        return once / (once + end - begin) if once else 0.0

    @property
    def busy_share(self) -> float:
        """Fraction of a step in which the device is busy, 0 to 1; without the profiler, if that is known."""
        if self.predicted_from:
            return 1.0 - self.predicted_from.idle_share
        if self.source.device == "gpu":
            return 1.0 - self.bound.launch
        return self.timeline.busy_ns / max(1, self.timeline.wall_ns)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
