"""One optimization applied to a run and measured beside the run without it; and what all of them make together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from tracekit import __version__
from tracekit.analyzers.errors import TracekitError
from tracekit.analyzers.verification import DeviceReading, Verification, Verified
from tracekit.capture import environment
from tracekit.capture.packages import require
from tracekit.capture.settings import Settings
from tracekit.measurement import device_state, peak_memory
from tracekit.measurement.interleaved import BUDGET_S, WALL_S, noise
from tracekit.measurement.side_by_side import Measured, Ready, measure
from tracekit.measurement.worker import device_works, failure_of
from tracekit.optimizations import parse
from tracekit.subjects.prepared_step import SEED
from tracekit.subjects.subject import Subject
from tracekit.verification.expectations import Expected

RANDOM_WEIGHTS = (
    "The weights are random: differences say how far arithmetic drifts in this architecture, not what a trained model "
    "would lose."
)
_APPLIED_WITH = ("torchao", "bitsandbytes", "liger-kernel", "peft", "nvidia-ml-py")
"""Distributions, beside torch and transformers, that a measurement depends on."""
_DRAFTS = (
    "Predicted and measured is the check of {drafted} drafted tokens, which yields {tokens:.1f} at that acceptance "
    "rate, before the time that a draft model takes."
)
POISONED = "The device failed in the optimization before it: this process cannot use it any more."


@dataclass(frozen=True)
class Start:
    """A run that is ready to be measured."""

    peak_memory_bytes: int
    device_name: str
    versions: dict[str, str]
    reading: DeviceReading | None


def start(before: Ready) -> Start:
    return Start(before.peak_memory_bytes(), device_name(before.subject.settings), versions(), device_state.reading())


def device_name(settings: Settings) -> str:
    return (environment.cuda_state() if settings.device == "cuda" else environment.cpu_state()).name


def verified(
    before: Ready, name: str, expected: Expected, budget_s: float = BUDGET_S, *, wall_s: float = WALL_S
) -> Verified:
    """The optimization (names joined with "+": several as one), or why it could not be measured."""
    told = foretold(name, expected)
    if not device_works():
        return replace(told, error=POISONED)
    try:
        with _compiled_code_forgotten():
            resident = peak_memory.allocated_bytes()
            changed = parse(name).apply(before.subject)
            found = measure(before, changed, resident_bytes=resident, budget_s=budget_s, wall_s=wall_s)
    except (TracekitError, RuntimeError, NotImplementedError, AssertionError, ImportError, TypeError) as error:
        return replace(told, error=str(failure_of(error)))
    return replace(
        told,
        measured=found.speedup,
        work_factor=found.work,
        before=found.before,
        after=found.after,
        peak_memory_bytes=found.peak_memory_bytes,
        difference=found.difference,
        caveats=(*told.caveats, *_caveats(changed, found)),
    )


def _caveats(changed: Subject, found: Measured) -> list[str]:
    drafts = _DRAFTS.format(drafted=changed.checked, tokens=changed.tokens_a_step) if changed.checked else ""
    return [line for line in (drafts, *found.warnings, noise(found.before, found.after)) if line]


def foretold(name: str, expected: Expected) -> Verified:
    """What is known of an optimization before it is measured."""
    optimization = parse(name)
    return Verified(
        id=optimization.name,
        title=optimization.title,
        predicted=expected.speedup,
        measured=None,
        predicted_peak_bytes=expected.peak_bytes,
        caveats=(*((f"Not predicted. {expected.refused}",) if expected.refused else ()), *_with_a_draft(expected)),
    )


def _with_a_draft(expected: Expected) -> tuple[str, ...]:
    if not expected.whole:
        return ()
    whole = expected.whole
    return (f"With a draft model {whole.expected:.2f} times is predicted ({whole.low:.2f} to {whole.high:.2f}).",)


def summary(
    settings: Settings, began: Start, results: Sequence[Verified], last: DeviceReading | None, *, own: bool = False
) -> Verification:
    """All that was measured of a run, and what it takes to measure it again. `own`: its inputs were given."""
    items, unit = items_of(settings, own=own)
    return Verification(
        tracekit=__version__,
        settings=settings.as_dict(),
        seed=SEED,
        device_name=began.device_name,
        versions=began.versions,
        items=items,
        unit=unit,
        peak_memory_bytes=began.peak_memory_bytes,
        results=tuple(results),
        caveats=(
            *((RANDOM_WEIGHTS,) if settings.weights == "random" else ()),
            *device_state.drift(began.reading, last),
        ),
        before=began.reading,
        after=last,
    )


@contextmanager
def _compiled_code_forgotten() -> Iterator[None]:
    """Each optimization compiles anew, as it would alone."""
    try:
        yield
    finally:
        require("torch.compiler").reset()


def items_of(settings: Settings, *, own: bool = False) -> tuple[int, str]:
    """What one step does, and the unit of it."""
    if own:
        return 1, "steps"
    if settings.seq_len == 0:
        return settings.batch_size, "images"
    tokens = {"decode": 1, "generate": settings.new_tokens}.get(settings.workload, settings.seq_len)
    return settings.batch_size * tokens, "tokens"


def versions() -> dict[str, str]:
    """Versions of the packages that a measurement depends on, those that are installed."""
    found = environment.versions()
    for package in _APPLIED_WITH:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def not_measured(name: str, expected: Expected, why: str) -> Verified:
    return replace(foretold(name, expected), error=why)
