"""Measures a subject with an optimization beside the one without it.

Both get the same inputs; their outputs are compared, and they are timed in alternating blocks.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from tracekit.analyzers.core import LARGEST, Interval
from tracekit.analyzers.results import Difference
from tracekit.analyzers.trace import Latency
from tracekit.apply import SEED, Subject, prepare
from tracekit.capture import NoRanges, Step, clock_of, explained
from tracekit.measure import device_state
from tracekit.measure.interleaved import BUDGET_S, WALL_S, Runnable, compare
from tracekit.run import require


@dataclass(frozen=True)
class Ready:
    """A subject whose step is prepared."""

    subject: Subject
    step: Step

    @property
    def runnable(self) -> Runnable:
        return Runnable(self.step, self.subject.numerics)

    def output(self) -> Any:
        """Run a step and return its output. Dropout uses the same seed each time."""
        with explained(self.subject.settings, self.subject.backend), self.subject.numerics():
            require("torch").manual_seed(SEED)
            return self.step(NoRanges())

    def peak_memory_bytes(self) -> int:
        """Run a step and return the peak of allocated device memory in bytes; 0 without a GPU."""
        with explained(self.subject.settings, self.subject.backend), self.subject.numerics():
            return device_state.peak_bytes(self.step)


class Measured(msgspec.Struct, frozen=True):
    """Measured effect of an optimization."""

    speedup: Interval
    """Latency before over latency after, times `work`, with its 95 % confidence interval."""
    work: float
    """Work of a step after, relative to a step before."""
    before: Latency
    after: Latency
    peak_memory_bytes: int
    """Peak memory with the optimization; 0 without a GPU."""
    difference: Difference | None
    """None if the inputs of both were not the same."""
    warnings: tuple[str, ...] = ()
    """Sentences on why the measurement may be inaccurate."""


def ready(subject: Subject, optimizer: Any = None) -> Ready:
    """Prepare the subject's step. Raises TracekitError when the device cannot run it."""
    with explained(subject.settings, subject.backend), subject.numerics():
        return Ready(subject, prepare(subject, optimizer))


def warm(subject: Subject, optimizer: Any = None) -> Ready:
    """Prepare the subject's step and run it once, so that an optimizer allocates its state."""
    prepared = ready(subject, optimizer)
    prepared.output()
    return prepared


def measure(
    before: Ready, changed: Subject, *, resident_bytes: int, budget_s: float = BUDGET_S, wall_s: float = WALL_S
) -> Measured:
    """Measure the changed subject beside the one before.

    `resident_bytes` is the device memory that was allocated before the optimization was applied. `budget_s` limits the
    seconds of timed steps, `wall_s` those of the whole comparison.
    """
    return beside(before, ready(changed), resident_bytes=resident_bytes, budget_s=budget_s, wall_s=wall_s)


def beside(
    before: Ready, after: Ready, *, resident_bytes: int, budget_s: float = BUDGET_S, wall_s: float = WALL_S
) -> Measured:
    """Do the same as `measure` for a subject whose step was prepared just before.

    If its step is a CUDA graph, capturing it has reset the peak of device memory.
    """
    changed = after.subject
    output = after.output()
    recorded = device_state.peak_so_far() if changed.graphs else 0
    expected = before.output()
    work = _work(before.subject, changed)
    difference = _difference(expected, output, logits=not changed.training) if work == 1 else None
    del expected, output
    peak = max(recorded, after.peak_memory_bytes())
    if peak:
        peak += device_state.shared_bytes(changed, before.subject) - resident_bytes
    clock = clock_of(changed.settings.device)
    times = compare(before.runnable, after.runnable, clock, budget_s, wall_s=wall_s)
    speedup = Interval(times.speedup.low * work, times.speedup.expected * work, times.speedup.high * work)
    return Measured(speedup, work, times.before, times.after, max(0, peak), difference, times.warnings)


def _work(before: Subject, after: Subject) -> float:
    """Return the work of a step after, relative to a step before."""
    return after.settings.batch_size / before.settings.batch_size * after.tokens_a_step / before.tokens_a_step


def _difference(expected: Any, output: Any, *, logits: bool) -> Difference | None:
    if not hasattr(expected, "shape") or expected.shape != output.shape:
        return None
    return output_difference(expected, output, logits=logits and expected.dim() > 1)


def output_difference(baseline: Any, output: Any, *, logits: bool) -> Difference:
    """Compare two tensors of the same shape.

    Returns the largest absolute difference, the RMS difference relative to the RMS of `baseline`, and with `logits`,
    whose last dimension is the vocabulary or the classes, the mean KL divergence in nats and the fraction of equal
    argmax.
    """
    torch = require("torch")
    with torch.inference_mode():
        before, after = baseline.detach().float(), output.detach().float()
        delta = after - before
        relative = delta.square().mean().sqrt() / before.square().mean().sqrt().clamp_min(1e-30)
        if not logits:
            return Difference(_finite(delta.abs().max()), _finite(relative), None, None)
        kl = torch.nn.functional.kl_div(
            after.log_softmax(-1), before.log_softmax(-1), reduction="none", log_target=True
        ).sum(-1)
        agreement = (before.argmax(-1) == after.argmax(-1)).float().mean()
        return Difference(
            _finite(delta.abs().max()), _finite(relative), _finite(kl.mean().clamp_min(0)), agreement.item()
        )


def _finite(value: Any) -> float:
    """Return a difference as JSON can hold it: the largest number for what is not finite."""
    return float(value.nan_to_num(LARGEST, LARGEST).clamp_max(LARGEST).item())
