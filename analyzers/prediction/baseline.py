"""The baseline that predictions start from: the op list of a step, calibrated to the step's real latency.

A profiler slows the host, so the host times in a trace are scaled until the simulated step takes as long as the step
took without a profiler.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.idle_tables import HOST_CAUSES
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.batch_size import batch_by_shapes
from tracekit.analyzers.prediction.graph_use import GraphUse
from tracekit.analyzers.prediction.host_calibration import MOST_TO_LAUNCH_NS, modelled, profiled, timed
from tracekit.analyzers.prediction.launching import launch_latency_ns, queued_gap_ns
from tracekit.analyzers.prediction.least_memory import least_memory_bytes
from tracekit.analyzers.prediction.math_fallback import MathFallback, math_fallback
from tracekit.analyzers.prediction.memory import Memory, held
from tracekit.analyzers.prediction.oplist import listed, typical_step
from tracekit.analyzers.prediction.outside import Outside
from tracekit.analyzers.prediction.profiler_share import profiler_share
from tracekit.analyzers.prediction.recorded import Recorded
from tracekit.analyzers.prediction.reproduction import Reproduction
from tracekit.analyzers.prediction.running import NOTHING_KNOWN, Running, running, trains
from tracekit.analyzers.prediction.simulate import Floats, latency_ns
from tracekit.analyzers.prediction.streams import side_by_side
from tracekit.analyzers.prediction.traced_step import HostTail, TracedStep, traced_step
from tracekit.analyzers.results import Analysis, Source
from tracekit.analyzers.trace import Trace


@dataclass(frozen=True, eq=False)
class Baseline:
    """An op list (OP_LIST) whose simulation reproduces the step's latency; two are the same if they are one object."""

    ops: pd.DataFrame
    gpu: GPU
    source: Source
    stated_ns: float
    """The step's latency as measured without a profiler, or as modelled; for an imported trace, as profiled."""
    launch_latency_ns: float
    gap_ns: float
    host_range: Interval
    """Factors on the host time that the evidence leaves open."""
    tail: HostTail | None = None
    """None: the host does nothing after its last launch."""
    overlaps: bool = False
    """Steps follow each other without waiting for the device: a step's latency is then the time until the next."""
    as_traced: Reproduction | None = None
    """The step under the profiler, with nothing fitted: the check of the simulation itself."""
    profiler_share: Interval | None = None
    """Part of the traced host time that is the profiler's, where no time without one is known; None: known, or none."""
    predicted_memory: Memory | None = None
    """What the step holds after optimizations; None: none was applied."""
    plain_launch_ns: float | None = None
    """Host time of one more launch in the run as it was before optimizations; None: none was applied."""
    overlap: float = 1.0
    """Busy time over the summed kernel time of all devices: below 1 where kernels overlap."""
    side_by_side: float = 1.0
    """Part of the busy time that is left at best when launches hold no stream up; 1: there is one stream."""
    batch_by_shapes: int = 0
    """Sequences or samples of a step by the shapes of its ops; 0: they do not tell."""
    least_memory_bytes: int = 0
    """What the step holds at least, where its peak is not known; 0: nothing is known."""
    running: Running = NOTHING_KNOWN
    """What the trace shows that the run does already."""
    fallback: MathFallback | None = None
    """Fused attention fell back to the math path; None: not that the trace shows."""
    outside: Outside = field(default_factory=Outside)
    """Host work outside the model."""
    recorded: Recorded = field(default_factory=Recorded)
    """What the trace says of each op."""
    graph_use: GraphUse = field(default_factory=GraphUse)
    host_causes: pd.DataFrame = field(default_factory=HOST_CAUSES.empty)
    """HOST_CAUSES of the step that stands for all."""
    entry_ns: float = 0.0
    """Host time before the first launch that goes into calling compiled code: launching, however long it takes."""

    @cached_property
    def trains(self) -> bool:
        """Whether a step trains: as the capture says, or by a backward pass or an optimizer among its ops."""
        capture = self.source.capture
        if capture and capture.workload:
            return capture.workload == "train"
        return self.source.runtime == "training" or trains(self.ops)

    @property
    def batch_size(self) -> int:
        """Sequences or samples of a step: as the capture says, or by the shapes of ops; 0: not known."""
        capture = self.source.capture
        return capture.batch_size if capture and capture.batch_size else self.batch_by_shapes

    @cached_property
    def latency_ns(self) -> float:
        """The simulated latency."""
        return self.simulate(self.ops)

    @cached_property
    def memory(self) -> Memory | None:
        """What the step holds; None: not known."""
        if self.predicted_memory is not None or self.source.capture is None:
            return self.predicted_memory
        return held(self.source.capture, self.ops, self.gpu, training=self.trains)

    @property
    def calibrated(self) -> Reproduction:
        """The step without a profiler, beside its latency. Of an imported trace only the profiled latency is known."""
        return Reproduction(self.latency_ns / 1e3, self.stated_ns / 1e3)

    @cached_property
    def busy_ns(self) -> float:
        return float(self.ops.kernel_ns.sum())

    @property
    def occupied_ns(self) -> float:
        """Time of the step in which a device is busy; overlapping kernels count once."""
        return min(self.overlap * self.busy_ns, self.unprofiled_ns)

    @property
    def unprofiled_ns(self) -> float:
        """Latency without a profiler: as stated, or simulated where the stated one holds a profiler's time.

        A profiler only adds time, so the stated latency is the most that it can be.
        """
        return self.stated_ns if self.profiler_share is None else min(self.stated_ns, self.latency_ns)

    @property
    def idle_share(self) -> float:
        """Part of the latency in which a device is idle, 0 to 1."""
        return 1 - self.occupied_ns / self.unprofiled_ns if self.unprofiled_ns else 0.0

    @cached_property
    def launching_ns(self) -> float:
        """Host time of a step that goes into launching."""
        return float(self.ops.host_ns.sum() - self.other_host_ns)

    @cached_property
    def planning(self) -> Floats:
        """Host time in which each op plans its kernel; it is no longer needed where shapes stay the same."""
        return self.recorded.planned(self.ops)

    @cached_property
    def other_host_ns(self) -> float:
        """Host time of a step that no way of launching saves."""
        host = self.ops.host_ns.to_numpy() - self.planning
        host[:1] -= self.entry_ns
        return float(np.maximum(host - MOST_TO_LAUNCH_NS, 0.0).sum())

    def hosts(self, factors: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
        """Return hosts with these factors: on launching, and on the time without a record.

        That time is the script's or the profiler's: on a host faster than is expected of a profiled step, the
        profiler's.
        """
        profiled = self.profiler_share is not None
        return tuple((factor, 0.0 if profiled and factor < 1.0 else 1.0) for factor in factors)

    def simulate(self, ops: pd.DataFrame, host_factor: float = 1.0, unexplained: float = 1.0) -> float:
        """Latency of a step of these ops, in nanoseconds, on a host with these factors (see `hosts`)."""
        host, kernel, sync = self.laid_out(ops, host_factor, unexplained)

        def until(steps: int) -> float:
            """Latency of so many steps in a row."""
            rows = (np.tile(each, steps) for each in (host, kernel, sync))
            return self._simulated(*rows)

        return until(3) - until(2) if self.overlaps else until(1)

    def laid_out(
        self, ops: pd.DataFrame, host_factor: float = 1.0, unexplained: float = 1.0
    ) -> tuple[Floats, Floats, Floats]:
        """Host times and kernel times of these ops and of what the host does beside and after them, and where the host
        waits for the device, as `simulate` takes them."""
        kernel = ops.kernel_ns.to_numpy() + (ops.launches.to_numpy() - 1) * self.gap_ns
        host, sync = ops.host_ns.to_numpy() * host_factor, ops.sync.to_numpy()
        outside = self.outside.scaled(unexplained, ("unexplained",)).before_each(len(ops))
        host = host + outside[:-1]
        if self.tail or outside[-1]:
            tail = self.tail or HostTail()
            host = np.append(host, [tail.before_ns * host_factor, tail.after_ns * host_factor + outside[-1]])
            kernel = np.append(kernel, [0.0, 0.0])
            sync = np.concatenate([sync[:-1], [False, tail.waits, False]])
        return host, kernel, sync

    def _simulated(self, host: Floats, kernel: Floats, sync: Floats) -> float:
        latency, gap = self.launch_latency_ns, self.gap_ns
        return float(latency_ns(host, kernel, launch_latency_ns=latency, gap_ns=gap, sync=sync))


def baseline(trace: Trace, analysis: Analysis) -> Baseline | None:
    """The calibrated baseline of a trace; None without device work or without a known GPU."""
    step = traced_step(trace, analysis)
    if step is None or analysis.source.gpu is None:
        return None
    of_step = listed(trace, analysis, step.wall_ns)
    ops, outside = of_step.ops, of_step.outside
    if not ops.kernel_ns.any():
        return None
    without = analysis.latency.unprofiled
    raw = Baseline(
        ops=ops,
        gpu=analysis.source.gpu,
        source=analysis.source,
        stated_ns=without.median_us * 1e3 if without else analysis.latency.profiled_us * 1e3,
        launch_latency_ns=launch_latency_ns(analysis.work, trace.host),
        gap_ns=queued_gap_ns(analysis.work),
        host_range=Interval(1.0, 1.0, 1.0),
        tail=step.tail.less(outside.tail_ns),
        outside=outside,
        recorded=of_step.recorded,
        host_causes=_causes(analysis),
        graph_use=step.graphs,
        overlaps=step.overlaps,
        batch_by_shapes=batch_by_shapes(trace.host),
        least_memory_bytes=least_memory_bytes(trace, ops, analysis.source.gpu),
        running=running(analysis.work, len(analysis.timeline.steps), measured=analysis.source.kind != "modelled"),
        fallback=math_fallback(trace.host, analysis.source.gpu, analysis.source.capture),
        overlap=_overlap(analysis, step, float(ops.kernel_ns.sum())),
    )
    raw = replace(raw, side_by_side=side_by_side(ops, of_step.work, raw.gpu))
    raw = replace(raw, as_traced=Reproduction(raw.latency_ns / 1e3, step.wall_ns / 1e3))
    if analysis.source.kind == "modelled":
        return modelled(raw)
    share = profiler_share(float(ops.host_ns.sum()), step.recorded, analysis.source.format)
    return timed(raw, share) if without else profiled(raw, share)


def _overlap(analysis: Analysis, step: TracedStep, kernel_ns: float) -> float:
    """Busy time of a step over its summed kernel time. Where a step was also timed without a profiler, of all steps."""
    steps = analysis.timeline.steps
    busy = float(steps.busy_ns.mean()) if analysis.latency.unprofiled else float(step.busy_ns)
    return busy / max(1, analysis.work.device.nunique()) / kernel_ns


def _causes(analysis: Analysis) -> pd.DataFrame:
    step = typical_step(analysis)
    causes = analysis.host_causes
    return causes if step is None else causes[causes["step"] == step.step].reset_index(drop=True)
