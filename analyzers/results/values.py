"""Frozen values that make up a prediction."""

from typing import Literal

import msgspec

from tracekit.analyzers.core import Displayed, Interval
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results.tables import Statements


class Memory(msgspec.Struct, frozen=True):
    """Bytes that a step allocates, by purpose."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    """Temporary tensors of a pass; in training, the tensors saved for the backward pass."""
    gradients: int = 0
    optimizer_state: int = 0
    temporaries: int = 0
    """Temporary tensors of the optimizer."""
    workspaces: int = 0
    """Library workspaces, independent of the batch."""
    loss: int = 0
    """Temporary tensors of the backward pass while all activations are allocated, mostly gradients of the logits."""
    tied_gradients: int = 0
    """Gradients of a weight that is used twice, before they are added at the end of the backward pass."""
    buffers: int = 0
    """Tensors of the model that are not weights, such as masks."""

    @property
    def peak(self) -> int:
        """The largest of three points: the loss, the end of the backward pass, and the optimizer step."""
        always = self.workspaces + self.weights + self.buffers + self.optimizer_state
        of_sequences = self.kv_cache + self.activations + self.loss
        return always + max(of_sequences, self.gradients + max(self.tied_gradients, self.temporaries))


class HostSpeed(msgspec.Struct, frozen=True):
    """Host time of a launch on one machine."""

    ratio: float
    """Relative to the reference machine: 2 is half as fast."""
    source: Literal["calls", "assumed", "modelled"]
    """calls: durations of the trace's launch calls; assumed: usual for machines with this GPU; modelled: the host that
    a modelled run was given."""

    def drifted(self, factor: float) -> "HostSpeed":
        """Return the speed if host times are `factor` times those of the trace.

        The trace and the latency were recorded in different minutes; the geometric mean of their speeds is used.
        """
        return msgspec.structs.replace(self, ratio=self.ratio * factor**0.5)


HOST_AND_GAPS = "host and gaps"
"""The part of a step in which the device is idle."""
PROFILER = "profiler"
"""The estimated part of a profiled latency that is due to the profiler."""
NOT_SIMULATED = "not simulated"
"""The part of a latency that its simulation does not explain."""


class Check(msgspec.Struct, frozen=True):
    """Simulated latency of the unmodified step, and its known latency."""

    stated_us: float
    simulated_us: float
    error: float
    """Simulated divided by stated latency, minus 1."""
    passed: bool
    """Whether the error is at most 5 %."""


class PredictedBaseline(msgspec.Struct, frozen=True):
    """The step that a prediction starts from."""

    latency_us: float
    timed: Literal["unprofiled", "modelled", "profiled"]
    profiler_share: float | None
    """Estimated fraction of a profiled latency that is due to the profiler; None: no part of it."""
    host_speed: HostSpeed
    idle_share: float
    """Fraction of the step without the profiler in which the GPU is idle, 0 to 1."""
    memory: Memory | None
    """Memory at the peak; None: unknown."""
    as_traced: Check | None
    """Check of the step under the profiler, without fitted values; None: no step of the trace can be compared."""
    calibrated: Check | None
    """Check of the step without a profiler, to which host times were fitted; None: it was not timed."""

    @property
    def failed(self) -> Check | None:
        """The first failed check of the unmodified step's simulation; None: none failed."""
        return next((check for check in (self.as_traced, self.calibrated) if check and not check.passed), None)

    @property
    def unprofiled_us(self) -> float:
        """Latency without the profiler."""
        return self.latency_us * (1 - (self.profiler_share or 0.0))

    @property
    def busy_us(self) -> float:
        """Time of a step in which the GPU is busy."""
        return self.unprofiled_us * (1 - self.idle_share)

    @property
    def profiled_idle_share(self) -> float:
        """Fraction of the step in which the GPU is idle under the profiler, which lengthens the host's time; 0 to 1."""
        return max(0.0, 1 - self.busy_us / self.latency_us) if self.latency_us else 0.0


class OpClassTime(msgspec.Struct, frozen=True):
    """Expected time of one class of ops in a step, before and after. The classes and the host sum to the latency."""

    op_class: str
    """A family of ops (gemm, attention, ...), memcpy, memset, other, `HOST_AND_GAPS`, `PROFILER` or `NOT_SIMULATED`."""
    before_ns: int
    after_ns: int


class Change(msgspec.Struct, frozen=True):
    """The source of a predicted gain."""

    by_op_class: tuple[OpClassTime, ...]
    work: float = 1.0
    """Factor on the work per step."""


class Costs(msgspec.Struct, frozen=True):
    """The costs of an optimization in a few words, as a card shows them."""

    memory: str
    accuracy: str
    effort: str


class Remedy(msgspec.Struct, frozen=True):
    """Optimizations that lower a run's peak memory."""

    name: str
    """Ids with their arguments, joined with "+"."""
    title: str
    peak_bytes: int
    free_bytes: int
    """Memory left at the peak; negative if the step still does not fit."""
    fits: bool
    saves: bool
    """Whether the peak is lower than before."""
    speedup: Interval
    """Speed-up of the step with the remedy, assuming that the unchanged step fitted."""


class MemoryFit(msgspec.Struct, frozen=True):
    """A run whose peak exceeds the GPU's memory."""

    gpu: str
    needed_bytes: int
    available_bytes: int
    largest_batch: int | None
    """The largest batch that fits; 0: none fits; None: unknown."""
    remedies: tuple[Remedy, ...]
    """Remedies that lower the peak: first those that make the run fit, fastest first."""
    at_least: bool = False
    """Whether only a lower bound of the needed bytes is known, so that a remedy may not suffice."""

    @property
    def fitting(self) -> tuple[Remedy, ...]:
        """The remedies that make the run fit."""
        return tuple(remedy for remedy in self.remedies if remedy.fits)


class Considered(msgspec.Struct, frozen=True, kw_only=True):
    """An optimization that was considered, and why it is or is not recommended."""

    id: str
    title: str
    recommended: bool = False
    reason: Statements = ()
    speedup: Interval | None
    """End-to-end latency before divided by latency after (for batching, throughput after divided by before)."""
    explained: Change | None = None
    """None: nothing was predicted."""
    objection: str = ""
    """Why the optimization cannot be applied to this run; "": it can."""
    notes: tuple[str, ...] = ()
    """Reasons why the gain is limited, and how to remove them."""


class Recommendation(Considered, Displayed, frozen=True, kw_only=True):
    """An optimization that is recommended, how to apply it, and what that costs."""

    recommended: bool = True
    speedup: Interval
    evidence: Statements = ()
    how_to: str
    caveats: tuple[str, ...] = ()
    costs: Costs | None = None
    throughput: bool = False
    """Whether the gain is in throughput: a step takes longer but does more work."""
    condition: str = ""
    """Requirement that this run does not meet, such as a draft model; "": none."""


class PlanStep(Recommendation, frozen=True, kw_only=True):
    """One step of a plan. Its speed-up and its explanation are relative to the result of the steps before it."""

    name: str
    """The optimization's id, with its argument."""
    cumulative: Interval | None
    """Latency speed-up of this step and all before it; None: this step's gain is in throughput."""
    latency_us: Interval
    """Latency of a step of the run after this plan step."""
    memory_bytes: int | None
    """Peak memory after this plan step; None: unknown."""


class GainThere(msgspec.Struct, frozen=True):
    """Gain of optimizations on another GPU or at another batch, relative to the run there without them."""

    setting: tuple[str, ...]
    """Names of the changes that move the run there: gpu:ID, batching:N."""
    latency_us: Interval
    """Latency of the run there without the optimizations."""
    speedup: Interval


class Prediction(msgspec.Struct, frozen=True):
    """A run, and its predicted step with optimizations, on another GPU, or at another batch."""

    applied: tuple[str, ...]
    """Names of the optimizations, in the order in which they are applied."""
    gpu: GPU
    """GPU of the predicted step."""
    batch_size: int | None
    """Batch size of the predicted step; None: unknown."""
    baseline: PredictedBaseline
    latency_us: Interval
    memory: Memory | None
    speedup: Interval
    """Latency before divided by latency after, times the factor on the work per step."""
    work_factor: float
    """Work of the predicted step divided by the baseline's work."""
    by_op_class: tuple[OpClassTime, ...]
    how_to: tuple[str, ...]
    caveats: tuple[str, ...]
    considered: tuple[Considered, ...] = ()
    """Each optimization, predicted alone."""
    plan: tuple[PlanStep, ...] = ()
    memory_fit: MemoryFit | None = None
    """Remedies that make the predicted step fit; None: it fits, or its peak is unknown."""
    there: GainThere | None = None
    """None: no optimization is combined with another GPU or batch, or the run stays on its GPU and at its batch."""
