"""A subject with an optimization beside the one without: same inputs, outputs compared, timed in turn."""

from dataclasses import dataclass
from typing import Any

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.verification import Difference
from tracekit.capture.annotate import NoRanges
from tracekit.capture.latency import clock_of
from tracekit.capture.packages import require
from tracekit.capture.record import explained
from tracekit.capture.workloads import Step
from tracekit.measurement import peak_memory
from tracekit.measurement.interleaved import BUDGET_S, WALL_S, Runnable, compare
from tracekit.measurement.output_difference import difference
from tracekit.measurement.worker import tell
from tracekit.subjects.prepared_step import SEED, prepare
from tracekit.subjects.subject import Subject


@dataclass(frozen=True)
class Ready:
    """A subject whose step is prepared."""

    subject: Subject
    step: Step

    @property
    def runnable(self) -> Runnable:
        return Runnable(self.step, self.subject.numerics)

    def output(self) -> Any:
        """What the next step computes. Dropout is drawn from the same seed each time."""
        with explained(self.subject.settings, self.subject.backend), self.subject.numerics():
            require("torch").manual_seed(SEED)
            return self.step(NoRanges())

    def peak_memory_bytes(self) -> int:
        """Peak of everything that is allocated on the device during a step."""
        with explained(self.subject.settings, self.subject.backend), self.subject.numerics():
            return peak_memory.peak_bytes(self.step)


@dataclass(frozen=True)
class Measured:
    """What an optimization really did."""

    speedup: Interval
    """Latency before over after, times the work done; 95 % of such intervals hold the true median."""
    work: float
    """How many times the work of a step before one does after."""
    before: Latency
    after: Latency
    peak_memory_bytes: int
    """After; 0 without a GPU."""
    difference: Difference | None
    """None: the outputs are not of the same inputs."""
    warnings: tuple[str, ...] = ()
    """What speaks against the measurement, as sentences."""


def ready(subject: Subject, optimizer: Any = None) -> Ready:
    """Prepare the subject's step. Raises TracekitError when the device cannot run it."""
    with explained(subject.settings, subject.backend), subject.numerics():
        return Ready(subject, prepare(subject, optimizer))


def warm(subject: Subject, optimizer: Any = None) -> Ready:
    """As `ready`, and one step was run: what the optimizer keeps from its first step on is allocated."""
    found = ready(subject, optimizer)
    found.output()
    return found


def measure(
    before: Ready, changed: Subject, *, resident_bytes: int, budget_s: float = BUDGET_S, wall_s: float = WALL_S
) -> Measured:
    """Run the changed subject beside the one before. `resident_bytes` were allocated before it was changed."""
    return beside(before, ready(changed), resident_bytes=resident_bytes, budget_s=budget_s, wall_s=wall_s)


def beside(
    before: Ready, after: Ready, *, resident_bytes: int, budget_s: float = BUDGET_S, wall_s: float = WALL_S
) -> Measured:
    """As `measure`, of a subject whose step was prepared just now: recording it reset the peak of memory."""
    changed = after.subject
    found = after.output()
    recorded = peak_memory.peak_so_far() if changed.graphs else 0
    expected = before.output()
    work = _work(before.subject, changed)
    apart = _difference(expected, found, logits=not changed.training) if work == 1 else None
    del expected, found
    peak = max(recorded, after.peak_memory_bytes())
    if peak:
        peak += peak_memory.shared_bytes(changed, before.subject) - resident_bytes
    clock = clock_of(changed.settings.device)
    times = compare(before.runnable, after.runnable, clock, budget_s, wall_s=wall_s, say=tell)
    speedup = Interval(times.speedup.low * work, times.speedup.expected * work, times.speedup.high * work)
    return Measured(speedup, work, times.before, times.after, max(0, peak), apart, times.warnings)


def _work(before: Subject, after: Subject) -> float:
    """How many times the work of a step before one after does."""
    return after.settings.batch_size / before.settings.batch_size * after.tokens_a_step / before.tokens_a_step


def _difference(expected: Any, found: Any, *, logits: bool) -> Difference | None:
    if not hasattr(expected, "shape") or expected.shape != found.shape:
        return None
    return difference(expected, found, logits=logits and expected.dim() > 1)
