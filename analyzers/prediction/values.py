"""What a prediction holds: small frozen values."""

from dataclasses import dataclass
from typing import Literal

from tracekit.analyzers.display import Displayed
from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.memory import Memory

HOST_AND_GAPS = "host and gaps"
"""The part of a step in which the device waits."""
PROFILER = "profiler"
"""The part of a profiled latency that is estimated to be the profiler's."""
NOT_SIMULATED = "not simulated"
"""What another latency has beyond its simulation."""


@dataclass(frozen=True)
class Check:
    """The unmodified step, simulated, beside the latency that it is known to have."""

    stated_us: float
    simulated_us: float
    error: float
    """Simulated over stated, less 1."""
    passed: bool
    """The error is at most 5 %."""


@dataclass(frozen=True)
class PredictedBaseline:
    """The step that a prediction starts from."""

    latency_us: float
    timed: Literal["unprofiled", "modelled", "profiled"]
    profiler_share: float | None
    """Part of a profiled latency that is estimated to be the profiler's; None: none of it."""
    idle_share: float
    """Part of the step without the profiler in which the GPU is idle, 0 to 1."""
    memory: Memory | None
    """At the peak; None: not known."""
    as_traced: Check | None
    """The step under the profiler, nothing fitted; None: no step of the trace can be compared."""
    calibrated: Check | None
    """The step without a profiler, to which host times were fitted; None: it was not timed so."""

    @property
    def failed(self) -> Check | None:
        """The first check that the simulation of the unmodified step fails; None: none."""
        return next((check for check in (self.as_traced, self.calibrated) if check and not check.passed), None)

    @property
    def understood(self) -> bool:
        """Whether the simulation of the unmodified step reproduces the times that are known."""
        return self.failed is None

    @property
    def unprofiled_us(self) -> float:
        """Latency without the profiler."""
        return self.latency_us * (1 - (self.profiler_share or 0.0))

    @property
    def busy_us(self) -> float:
        """Time of a step in which the GPU is busy."""
        return self.unprofiled_us * (1 - self.idle_share)


@dataclass(frozen=True)
class OpClassTime:
    """Time of a step's ops of one class, before and after, as expected. Classes and the host's sum to the latency."""

    op_class: str
    """A family of ops (gemm, attention, ...), memcpy, memset, other, `HOST_AND_GAPS`, `PROFILER` or `NOT_SIMULATED`."""
    before_ns: int
    after_ns: int


@dataclass(frozen=True)
class Change:
    """Where a predicted gain comes from."""

    by_op_class: tuple[OpClassTime, ...]
    work: float = 1.0
    """How many times the work a step then does."""


@dataclass(frozen=True)
class Costs:
    """What an optimization costs beside its gain, in the few words that fit a card."""

    memory: str
    accuracy: str
    effort: str


@dataclass(frozen=True)
class Remedy:
    """Optimizations that lower a run's peak memory."""

    name: str
    """Ids with their arguments, joined with "+"."""
    title: str
    peak_bytes: int
    free_bytes: int
    """Memory left at the peak; negative where it still does not fit."""
    fits: bool
    saves: bool
    """The peak is lower than before."""
    speedup: Interval
    """Of a step that would fit, against the step as it is."""


@dataclass(frozen=True)
class MemoryFit:
    """A run whose peak exceeds the GPU's memory."""

    gpu: str
    needed_bytes: int
    available_bytes: int
    largest_batch: int | None
    """The largest batch that fits; 0: none does; None: not known."""
    remedies: tuple[Remedy, ...]
    """What lowers the peak: first what makes it fit, the fastest first."""

    @property
    def fitting(self) -> tuple[Remedy, ...]:
        """The remedies that make it fit."""
        return tuple(remedy for remedy in self.remedies if remedy.fits)


@dataclass(frozen=True)
class Recommendation(Displayed):
    id: str
    title: str
    speedup: Interval
    """End to end, latency before over latency after (throughput after over before, for batching)."""
    reason: Statements
    evidence: Statements
    how_to: str
    caveats: tuple[str, ...]
    explained: Change | None = None
    costs: Costs | None = None
    throughput: bool = False
    """Its gain is in throughput: a step takes longer, and does more."""
    condition: str = ""
    """What it needs that this run does not have, such as a draft model; "": nothing."""


@dataclass(frozen=True)
class Considered:
    """An optimization that was looked at, and why it is or is not recommended."""

    id: str
    title: str
    recommended: bool
    reason: Statements
    speedup: Interval | None
    explained: Change | None = None
    """None: nothing was predicted."""
    objection: str = ""
    """Why it cannot be done to this run; "": it can."""
    notes: tuple[str, ...] = ()
    """What keeps it from its gain, and how to remove that."""


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan. Each starts from what the steps before it made of the run."""

    name: str
    """The optimization's id, with its argument."""
    title: str
    speedup: Interval
    """Of this step alone."""
    cumulative: Interval | None
    """In latency, of it and all before it; None: its gain is in throughput."""
    latency_us: Interval
    """Of a step of the run, then."""
    throughput: bool
    """Its gain is in throughput: a step takes longer, and does more."""
    memory_bytes: int | None
    """At the peak, then; None: not known."""
    explained: Change
    how_to: str
    caveats: tuple[str, ...]
    costs: Costs | None = None
    condition: str = ""
    """What it needs that this run does not have; "": nothing."""


@dataclass(frozen=True)
class GainThere:
    """What optimizations give on another GPU or at another batch, over the run as it would be there without them."""

    setting: tuple[str, ...]
    """Names of what moves the run there: gpu:ID, batching:N."""
    latency_us: Interval
    """Of the run there without them."""
    speedup: Interval


@dataclass(frozen=True)
class Prediction:
    """A run, and what it would be with optimizations, on another GPU, or at another batch."""

    applied: tuple[str, ...]
    """Names of the optimizations, in the order in which they are applied."""
    gpu: GPU
    """Where the predicted step runs."""
    batch_size: int | None
    """Of the predicted step; None: not known."""
    baseline: PredictedBaseline
    latency_us: Interval
    memory: Memory | None
    speedup: Interval
    """Latency before over after, times the work that a step then does."""
    work_factor: float
    """How many times the baseline's work the predicted step does."""
    by_op_class: tuple[OpClassTime, ...]
    how_to: tuple[str, ...]
    caveats: tuple[str, ...]
    considered: tuple[Considered, ...] = ()
    """Each optimization alone."""
    plan: tuple[PlanStep, ...] = ()
    memory_fit: MemoryFit | None = None
    """How the predicted step could be made to fit; None: it fits, or its peak is not known."""
    there: GainThere | None = None
    """None: nothing is applied beside another GPU or batch, or the run stays on its GPU and at its batch."""
