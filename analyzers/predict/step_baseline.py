"""The baseline that predictions start from: the op list of a step, whose simulation takes as long as the step."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import Growth, Loader
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.fuse import Timed
from tracekit.analyzers.predict.batch_size import repeated_blocks
from tracekit.analyzers.predict.host import REFERENCE, beyond_launching
from tracekit.analyzers.predict.math_fallback import MathFallback
from tracekit.analyzers.predict.memory import held
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.outside import PAUSES, SHARE, Outside
from tracekit.analyzers.predict.recorded import Recorded
from tracekit.analyzers.predict.running import NOTHING_KNOWN, GraphUse, Running, trains
from tracekit.analyzers.predict.simulation import Bools, Floats, Reproduction, latency_ns, waiting_later
from tracekit.analyzers.predict.traced_step import HostTail
from tracekit.analyzers.results import HOST_CAUSES, HostSpeed, Memory, Source

if TYPE_CHECKING:
    from tracekit.analyzers.fuse import Graph


class Baseline(msgspec.Struct, frozen=True, eq=False, dict=True):
    """An op list (OP_LIST) whose simulation reproduces the step's latency. Instances compare by identity."""

    ops: OpList
    gpu: GPU
    source: Source
    stated_ns: float
    """The step's latency as measured without a profiler, or as modelled; for an imported trace, as profiled."""
    launch_latency_ns: float
    gap_ns: float
    host_range: Interval
    """Range of the factor on host time that the evidence allows."""
    slowest_ns: float = 0.0
    """The longest latency that workers of a data loader may make of it, if the trace does not tell; 0: it does."""
    tail: HostTail | None = None
    """Host time after the last launch; None: the host does nothing after it."""
    overlaps: bool = False
    """Whether steps follow each other without waiting for the device. The latency is then the period between steps."""
    as_traced: Reproduction | None = None
    """The simulated step with the profiler, without fitted values, to check the simulation; None: not compared."""
    profiler_share: Interval | None = None
    """Estimated fraction of the traced host time that the profiler took; None: the time without a profiler is known, or
    no profiler ran."""
    predicted_memory: Memory | None = None
    """Memory of the step after optimizations; None: no optimization was applied."""
    host_speed: HostSpeed = REFERENCE
    decisions: int = 0
    """Number of branches in a step for which Python read a tensor in the host's memory."""
    idle_casts: tuple[int, ...] = ()
    """Number of elements of each tensor that a step casts to fp32 although it is in fp32 already."""
    overlap: float = 1.0
    """Busy time divided by the summed kernel time of all devices: below 1 where kernels overlap."""
    side_by_side: float = 1.0
    """Smallest possible fraction of the busy time if launches never delay a stream; 1: there is one stream."""
    batch_by_shapes: int = 0
    """Sequences or samples per step, derived from the shapes of its ops; 0: unknown."""
    least_memory: Memory | None = None
    """Lower bound of the step's memory if its peak is unknown, for predictions on another GPU; None: also unknown."""
    running: Running = NOTHING_KNOWN
    """Features that the traced run already uses, such as CUDA graphs."""
    fallback: MathFallback | None = None
    """Reason why fused attention fell back to the math path; None: the trace shows no fallback."""
    outside: Outside = msgspec.field(default_factory=Outside)
    """Host work outside the model."""
    recorded: Recorded = msgspec.field(default_factory=Recorded)
    """Facts that the trace recorded about each op."""
    graph_use: GraphUse = msgspec.field(default_factory=GraphUse)
    host_causes: pd.DataFrame = msgspec.field(default_factory=HOST_CAUSES.empty)
    """HOST_CAUSES of the representative step."""
    graph: "Callable[[], Graph] | None" = None
    """Returns the graph of the step that capture kept; None: no graph was kept."""
    timed_kernels: Timed = msgspec.field(default_factory=dict)
    """Written kernels of the step that were timed on its GPU."""
    frees: int = 0
    """Number of calls in a step by which the driver frees device memory."""
    growth: Growth | None = None
    """How the passes of the run grow by one token each, without a KV cache; None: they do not."""
    rest_ns: float = 0.0
    """Time of a step that the simulation of its ops does not explain. It stays, whatever changes."""
    gpu_is_known: bool = True
    """Whether `gpu` ran the step; else it stands in for an unknown one, and its rates mean nothing."""
    origin: "Baseline | None" = None
    """The run before optimizations, whose ops the recorded facts describe; None: this is it."""
    loader: Loader = Loader()
    """The data loader of the run."""
    entry_ns: float = 0.0
    """Host time before the first launch that calls compiled code. It counts as launching."""

    @cached_property
    def trains(self) -> bool:
        """Whether a step trains, according to the capture or to a backward pass or an optimizer among its ops."""
        capture = self.source.capture
        if capture and capture.workload:
            return capture.workload == "train"
        return self.source.runtime == "training" or trains(self.ops)

    @cached_property
    def blocks(self) -> "pd.Series[str]":
        """Name of the repeated block of each op of the forward pass that belongs to one."""
        return repeated_blocks(self.ops)

    @property
    def batch_size(self) -> int:
        """Sequences or samples per step, according to the capture or to the shapes of ops; 0: unknown."""
        capture = self.source.capture
        return capture.batch_size if capture and capture.batch_size else self.batch_by_shapes

    @cached_property
    def latency_ns(self) -> float:
        """Simulated latency in nanoseconds."""
        return self.simulate(self.ops)

    @cached_property
    def memory(self) -> Memory | None:
        """Memory of the step at its peak; None: unknown."""
        if self.predicted_memory is not None or self.source.capture is None:
            return self.predicted_memory
        return held(self.source.capture, self.ops, self.gpu, training=self.trains)

    @property
    def calibrated(self) -> Reproduction:
        """The simulated step without a profiler, beside its latency (for an imported trace, the profiled latency)."""
        return Reproduction(self.latency_ns / 1e3, self.stated_ns / 1e3)

    @cached_property
    def busy_ns(self) -> float:
        return float(self.ops.kernel_ns.sum())

    @property
    def occupied_ns(self) -> float:
        """Time of the step in which a device is busy; overlapping kernels count once."""
        return min(self.overlap * self.busy_ns, self.unprofiled_ns)

    @property
    def waiting_ns(self) -> float:
        """Time of the simulated step in which the device waits, but for allocations and garbage collection: the trace
        tells how long these take, as no calls are recorded in them."""
        told = self.outside.total(("allocation", "garbage-collection"))
        return max(0.0, self.latency_ns - self.overlap * self.busy_ns - told)

    @property
    def unprofiled_ns(self) -> float:
        """Latency without a profiler: the stated one, or the simulated one if the stated one includes a profiler's.

        A profiler only adds time, so the stated latency is an upper bound.
        """
        return self.stated_ns if self.profiler_share is None else min(self.stated_ns, self.latency_ns)

    @property
    def unevenly(self) -> float:
        """Smallest factor on the host time of some ops if a profiler took as large a share of it as of any run's."""
        if self.profiler_share is None:
            return 1.0 if self.source.kind == "modelled" else (1 - SHARE.high) / (1 - SHARE.expected)
        return self.host_range.low

    @property
    def idle_share(self) -> float:
        """Fraction of the latency in which the device is idle, 0 to 1."""
        return 1 - self.occupied_ns / self.unprofiled_ns if self.unprofiled_ns else 0.0

    def outside_ns(self, causes: Iterable[str]) -> float:
        """Return the time of host work outside the model in a step of `unprofiled_ns`, which may be shorter than the
        simulated step."""
        return self.outside.total(causes) * min(1.0, self.unprofiled_ns / max(self.latency_ns, 1.0))

    @cached_property
    def launching_ns(self) -> float:
        """Host time of a step that launches take."""
        return float(self.ops.host_ns.sum() - self.other_host_ns)

    @cached_property
    def waits_to_free(self) -> Bools:
        """Whether the host waits after each op only to free memory, as it does in each step."""
        return np.asarray(self.recorded.waits_to_free(self.ops) & self.ops.sync & (self.frees > 0))

    @cached_property
    def planning(self) -> Floats:
        """Host time in which ops plan their kernels, which static shapes save."""
        return self.recorded.planned(self.ops)

    @cached_property
    def other_host_ns(self) -> float:
        """Host time of a step that does not depend on how ops are launched."""
        return float(self.other_host.sum())

    @cached_property
    def other_host(self) -> Floats:
        """The same for each op, in nanoseconds."""
        host = self.ops.host_ns - self.planning
        host[:1] -= self.entry_ns
        return beyond_launching(host, self.ops.launches)

    def hosts(self, factors: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
        """Return hosts with these factors on launch time and on unexplained time. Unexplained time belongs to the
        script; on a host that is faster than expected under a profiler, pauses of the recording are part of it."""
        if self.profiler_share is None:
            return tuple((factor, 1.0) for factor in factors)
        pauses = PAUSES * self.unprofiled_ns
        left = max(0.0, 1 - pauses / max(self.outside.total(("unexplained",)), 1.0))
        return tuple((factor, left if factor < 1.0 else 1.0) for factor in factors)

    def simulate(self, ops: OpList, host_factor: float = 1.0, unexplained: float = 1.0) -> float:
        """Return the latency in nanoseconds of a step of these ops on a host with these factors (see `hosts`)."""
        step = self.laid_out(ops, host_factor, unexplained)

        def until(steps: int) -> float:
            """Return the latency of this many consecutive steps."""
            return self._simulated(*(np.concatenate([each] * steps) for each in step))

        stalls = self._scaled_unexplained(unexplained).stalled_ns(self._unexplained_factor(host_factor))
        return self.rest_ns + stalls + (until(3) - until(2) if self.overlaps else until(1))

    def laid_out(self, ops: OpList, host_factor: float = 1.0, unexplained: float = 1.0) -> tuple[Floats, Floats, Bools]:
        """Return host times, kernel times and waits of these ops as `simulate` takes them, with other host work."""
        host, kernel = ops.host_ns * host_factor, ops.kernel_ns + (ops.launches - 1) * self.gap_ns
        kernel += self.recorded.queued_ns(ops)
        ahead = self.recorded.before_wait(ops, host)
        outside = self._scaled_unexplained(unexplained).before_each(len(ops), self._unexplained_factor(host_factor))
        host, kernel, sync = waiting_later(host + outside[:-1], kernel, ops.sync, ahead)
        if self.tail or outside[-1]:
            tail = self.tail or HostTail()
            host = np.append(host, [tail.before_ns * host_factor, tail.after_ns * host_factor + outside[-1]])
            kernel = np.append(kernel, [0.0, 0.0])
            sync = np.concatenate([sync[:-1], [False, tail.waits, False]])
        return host, kernel, sync

    def _scaled_unexplained(self, unexplained: float) -> Outside:
        return self.outside.scaled(unexplained, ("unexplained",))

    def _unexplained_factor(self, host_factor: float) -> float:
        """Return the factor on host work outside the model, which does not vary where no profiler is estimated."""
        return host_factor if self.profiler_share else 1.0

    def _simulated(self, host: Floats, kernel: Floats, sync: Bools) -> float:
        latency, gap = self.launch_latency_ns, self.gap_ns
        return float(latency_ns(host, kernel, launch_latency_ns=latency, gap_ns=gap, sync=sync))
