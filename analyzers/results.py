"""What an analysis holds: small frozen values, and the tables of result_tables.py."""

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from tracekit.analyzers.attribution.runtime import Runtime
from tracekit.analyzers.capture_info import CaptureInfo, Latency
from tracekit.analyzers.counting.tables import COUNTS, PLACES
from tracekit.analyzers.display import Displayed
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.idle_tables import GAPS, HOST_CAUSES, HOST_SPANS, IDLE_CAUSES
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.layer_result_tables import LAYER_OPS, LAYER_PARTS
from tracekit.analyzers.prediction.values import Considered, MemoryFit, PlanStep, PredictedBaseline, Recommendation
from tracekit.analyzers.result_tables import (
    COUNTERS_COMPARISON,
    FUSION_PLAN,
    PREDICTED_WORK,
    RANGES,
)
from tracekit.analyzers.verification import Verification

Bound = Literal["compute", "memory", "launch", "latency", "transfer"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch", "latency", "transfer")


@dataclass(frozen=True)
class CounterSource:
    """How much of the work has FLOPs and bytes that Nsight Compute measured."""

    launches: int
    """Kernel launches measured."""
    unmatched: int
    """Those that are none of the trace's kernels."""
    matched: int
    """Kernels of the trace that take their FLOPs or bytes from them."""
    kernels: int
    """Kernels of the trace."""
    busy_share: float
    """Part of the busy time that the matched kernels make up."""


@dataclass(frozen=True)
class Source:
    """Where the numbers come from."""

    kind: Literal["measured", "modelled", "imported"]
    """measured and modelled: captured by tracekit; imported: by another tool."""
    format: str
    device: Literal["gpu", "cpu"]
    """What the busy time is of: cpu in a trace without device work."""
    device_name: str
    """As the driver reports it; "" when the trace does not say."""
    gpu: GPU | None
    """Whose roofs are used: the GPU that ran the work, or was modelled. None: unknown; nothing is placed on a roof."""
    precision: str = ""
    layers_from: Literal[
        "tracekit ranges", "nn.Module events", "record_function ranges", "compiled regions", "none"
    ] = "none"
    capture: CaptureInfo | None = None
    zero_ns: int = 0
    """The moment 0 of the analysis's times as the events of the trace's file write it."""
    counters: CounterSource | None = None
    """None: every FLOP and byte is counted."""
    trains: bool = False
    """The run trains: it has a backward pass or steps of an optimizer."""
    runtime: Runtime = ""


@dataclass(frozen=True)
class StepLatency:
    """Time of one step."""

    unprofiled: Latency | None
    """Timed without a profiler (measured) or simulated (modelled)."""
    profiled_us: float
    """Median wall time of the steps in the trace."""


@dataclass(frozen=True)
class DeviceTime:
    """Times in which the devices do a kind of work, summed over devices. Where kinds overlap, each counts the time."""

    span_ns: int
    """From the start of a device's first work to the end of its last."""
    compute_ns: int
    copy_ns: int
    communication_ns: int
    exposed_communication_ns: int
    """Communication while nothing is computed on the device; the rest is hidden behind computation. The bound
    `transfer` counts the same time, and exposed copies."""


@dataclass(frozen=True)
class Timeline:
    wall_ns: int
    busy_ns: int
    idle_ns: int
    steps: pd.DataFrame = field(repr=False)
    device: DeviceTime | None = None
    """None: no device work."""


@dataclass(frozen=True)
class Coverage:
    """Shares of the busy time that have an op, a layer, and counted FLOPs and bytes."""

    op: float
    layer: float
    cost: float


@dataclass(frozen=True)
class BoundShares:
    """Shares of a step's time by what bounds it; they sum to 1. Idle time of the device is launch.

    Transfer is exposed time: copies and communication while nothing else runs on the device. Unknown is work without a
    known cost, and all of a trace of a CPU, whose roofs are not known.
    """

    compute: float
    memory: float
    launch: float
    latency: float
    transfer: float
    unknown: float = 0.0

    def with_idle(self, idle: float) -> "BoundShares":
        """The same work with this part of the time idle. A run of nothing but transfers waits for them."""
        rest = 1.0 - self.launch
        if self.transfer == 1.0 or not rest:
            return self
        scaled = {name: getattr(self, name) * (1.0 - idle) / rest for name in (*BOUNDS, "unknown")}
        return BoundShares(**{**scaled, "launch": idle})

    def ranked(self) -> list[tuple[str, float]]:
        """(bound, share), the largest first; without an unknown that is nothing."""
        shares = [(name, getattr(self, name)) for name in BOUNDS]
        return sorted([*shares, *([("unknown", self.unknown)] if self.unknown else [])], key=lambda pair: -pair[1])


@dataclass(frozen=True)
class Projection:
    """The step's latency on another GPU, modelled from a measured run."""

    gpu: GPU
    latency_us: Interval
    busy_us: Interval
    reason: str
    memory_bytes: int | None = None
    """Peak memory there; None: not known."""

    @property
    def fits(self) -> bool:
        """Whether the GPU's memory holds the step, as far as is known."""
        return self.memory_bytes is None or self.memory_bytes <= self.gpu.memory_bytes


_TABLES = (
    *("layers", "layer_types", "layer_parts", "layer_ops", "phases", "steps", "ops", "kernels", "ranges", "gaps"),
    *("idle_causes", "problems"),
)


@dataclass(frozen=True, repr=False)
class Analysis(Displayed):
    """Everything tracekit has to say about one trace."""

    source: Source
    latency: StepLatency
    timeline: Timeline
    work: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    layer_types: pd.DataFrame = field(repr=False)
    ops: pd.DataFrame = field(repr=False)
    kernels: pd.DataFrame = field(repr=False)
    phases: pd.DataFrame = field(repr=False)
    coverage: Coverage
    bound: BoundShares
    problems: pd.DataFrame = field(repr=False)
    layer_ops: pd.DataFrame = field(default_factory=LAYER_OPS.empty, repr=False)
    layer_parts: pd.DataFrame = field(default_factory=LAYER_PARTS.empty, repr=False)
    ranges: pd.DataFrame = field(default_factory=RANGES.empty, repr=False)
    counters_comparison: pd.DataFrame = field(default_factory=COUNTERS_COMPARISON.empty, repr=False)
    gaps: pd.DataFrame = field(default_factory=GAPS.empty, repr=False)
    idle_causes: pd.DataFrame = field(default_factory=IDLE_CAUSES.empty, repr=False)
    host_causes: pd.DataFrame = field(default_factory=HOST_CAUSES.empty, repr=False)
    host_spans: pd.DataFrame = field(default_factory=HOST_SPANS.empty, repr=False)
    counts: pd.DataFrame = field(default_factory=COUNTS.empty, repr=False)
    places: pd.DataFrame = field(default_factory=PLACES.empty, repr=False)
    projection: Projection | None = None
    recommendations: tuple[Recommendation, ...] = ()
    considered: tuple[Considered, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    """The best few optimizations together, each with its own gain; throughput last."""
    fusion_plan: pd.DataFrame = field(default_factory=FUSION_PLAN.empty, repr=False)
    predicted_work: pd.DataFrame = field(default_factory=PREDICTED_WORK.empty, repr=False)
    memory_fit: MemoryFit | None = None
    """How the run could be made to fit its GPU; None: it fits, or its peak is not known."""
    predicted_from: PredictedBaseline | None = None
    """The step that predictions start from; None: nothing can be predicted."""
    verified: Verification | None = None
    """What was measured of optimizations of this run; None: nothing was."""

    @property
    def steps(self) -> pd.DataFrame:
        """One row a step of the trace (STEPS)."""
        return self.timeline.steps

    def __repr__(self) -> str:
        """Where it ran, how long a step takes, what bounds it, and which tables there are."""
        source, tables = self.source, [name for name in _TABLES if len(getattr(self, name))]
        step = self.latency.unprofiled.median_us if self.latency.unprofiled else self.latency.profiled_us
        bound, share = self.bound.ranked()[0]
        where = source.device_name or source.device
        lines = (
            f"<tracekit.Analysis: {source.kind}, {where}, {len(self.steps)} steps of {step / 1e3:,.2f} ms",
            f"bound: {bound} {share:.0%}; {len(self.recommendations)} recommendations; {len(self.problems)} problems",
            f"tables: {', '.join(tables)}>",
        )
        return "\n  ".join(lines)

    @property
    def recorded_idle_share(self) -> float:
        """Part of the steps in which the device is idle as recorded, under the profiler, 0 to 1."""
        steps = self.timeline.steps
        return float(steps["idle_ns"].sum() / max(1, (steps["idle_ns"] + steps["busy_ns"]).sum()))

    @property
    def undetermined(self) -> bool:
        """Whether what bounds the run without the profiler is not known: it could only be estimated from a simulation,
        and that does not reproduce the recorded step."""
        start = self.predicted_from
        return start is not None and start.timed == "profiled" and not start.understood

    @property
    def busy_share(self) -> float:
        """Part of a step in which the device is busy, 0 to 1; without the profiler where that is known or estimated."""
        if self.predicted_from:
            return 1.0 - self.predicted_from.idle_share
        if self.source.device == "gpu":
            return 1.0 - self.bound.launch
        return self.timeline.busy_ns / max(1, self.timeline.wall_ns)
