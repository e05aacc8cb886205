"""Optimizations applied to a run one after another, each measured beside the run without it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from analyzers.errors import TracekitError
from analyzers.verified import Verification, Verified
from tracekit import __version__
from tracekit.capture import environment
from tracekit.capture.packages import require
from tracekit.capture.progress import Say
from tracekit.capture.settings import Settings
from tracekit.measurement import device, memory
from tracekit.measurement.measure import Ready, measure
from tracekit.measurement.predicted import Expected
from tracekit.measurement.steps import SEED
from tracekit.measurement.timing import BUDGET_S, noise
from tracekit.optimizations import parse
from tracekit.optimizations.base import Optimization

RANDOM_WEIGHTS = (
    "The weights are random: differences say how far arithmetic drifts in this architecture, not what a trained model "
    "would lose."
)


def verify_all(
    before: Ready, names: list[str], expected: Callable[[str], Expected], say: Say, budget_s: float = BUDGET_S
) -> Verification:
    """Each optimization (names joined with "+": several as one) applied to the subject, predicted, then measured.

    What cannot be applied is a result, too, that says why.
    """
    optimizations = [parse(name) for name in names]
    predictions = [expected(name) for name in names]
    peak, first = before.peak_memory_bytes(), device.reading()
    results = []
    for optimization, prediction in zip(optimizations, predictions, strict=True):
        say(f"measuring {optimization.title}")
        results.append(_verified(before, optimization, prediction, budget_s))
    last, subject = device.reading(), before.subject
    items, unit = items_of(subject.settings, own=subject.inputs is not None)
    return Verification(
        tracekit=__version__,
        settings=subject.settings.as_dict(),
        seed=SEED,
        device_name=_device_name(subject.settings),
        versions=environment.versions(),
        items=items,
        unit=unit,
        peak_memory_bytes=peak,
        results=tuple(results),
        caveats=(*((RANDOM_WEIGHTS,) if subject.settings.weights == "random" else ()), *device.drift(first, last)),
        before=first,
        after=last,
    )


def _verified(before: Ready, optimization: Optimization, expected: Expected, budget_s: float) -> Verified:
    told = Verified(
        id=optimization.name,
        title=optimization.title,
        predicted=expected.speedup,
        measured=None,
        predicted_peak_bytes=expected.peak_bytes,
        caveats=(f"Not predicted. {expected.refused}",) if expected.refused else (),
    )
    try:
        with _compiled_code_forgotten():
            resident = memory.allocated_bytes()
            found = measure(before, optimization.apply(before.subject), resident_bytes=resident, budget_s=budget_s)
    except (TracekitError, RuntimeError, NotImplementedError, AssertionError, ImportError, TypeError) as error:
        return replace(told, error=reason_of(error))
    return replace(
        told,
        measured=found.speedup,
        work_factor=found.work,
        before=found.before,
        after=found.after,
        peak_memory_bytes=found.peak_memory_bytes,
        difference=found.difference,
        caveats=(*told.caveats, *dict.fromkeys(filter(None, (noise(found.before), noise(found.after))))),
    )


def reason_of(error: Exception) -> str:
    """One line: what a package or a device says against an optimization."""
    if isinstance(error, TracekitError):
        return " ".join(part for part in (error.what, error.why, error.hint) if part)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


@contextmanager
def _compiled_code_forgotten() -> Iterator[None]:
    """Each optimization compiles anew, as it would alone."""
    try:
        yield
    finally:
        require("torch.compiler").reset()


def items_of(settings: Settings, *, own: bool) -> tuple[int, str]:
    """What one step does, and the unit of it."""
    if own:
        return 1, "steps"
    if settings.seq_len == 0:
        return settings.batch_size, "images"
    tokens = {"decode": 1, "generate": settings.new_tokens}.get(settings.workload, settings.seq_len)
    return settings.batch_size * tokens, "tokens"


def _device_name(settings: Settings) -> str:
    state = environment.cuda_state() if settings.device == "cuda" else environment.cpu_state()
    return state.name
