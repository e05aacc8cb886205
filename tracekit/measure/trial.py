"""Applies one optimization to a run and measures it beside the run without it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from msgspec.structs import replace

from tracekit.advise import CHECKED, parse
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.results import DeviceReading, Verification, Verified, of_step, say
from tracekit.analyzers.trace import Latency
from tracekit.apply import SEED, Subject
from tracekit.measure import device_state, drafting
from tracekit.measure.drafting import Draft
from tracekit.measure.expectations import Expected
from tracekit.measure.interleaved import BUDGET_S, WALL_S, noise
from tracekit.measure.quality import Evaluation, judged
from tracekit.measure.side_by_side import Measured, Ready, measure
from tracekit.measure.worker import device_works, failure_of
from tracekit.reports.words import sentence
from tracekit.run import Settings, environment, require
from tracekit.version import __version__

_APPLIED_WITH = ("torchao", "bitsandbytes", "liger-kernel", "nvidia-ml-py")
"""Packages that a measurement depends on, in addition to torch and transformers."""
POISONED = "The device failed in an earlier optimization, and this process cannot use it any more."


@dataclass(frozen=True)
class Start:
    """The state of a run and its device before anything is measured."""

    peak_memory_bytes: int
    device_name: str
    versions: dict[str, str]
    reading: DeviceReading | None


def start(before: Ready) -> Start:
    return Start(before.peak_memory_bytes(), device_name(before.subject.settings), versions(), device_state.reading())


def device_name(settings: Settings) -> str:
    return (environment.cuda_state() if settings.device == "cuda" else environment.cpu_state()).name


def verify(
    before: Ready,
    name: str,
    expected: Expected,
    budget_s: float = BUDGET_S,
    *,
    wall_s: float = WALL_S,
    evaluation: Evaluation | None = None,
) -> Verified:
    """Measure the optimization `name` (names joined with "+" are applied together), and judge it by the evaluation.

    An exception of the model, a package or the device becomes the `error` of the result.
    """

    def tried(predicted: Verified) -> Verified:
        resident = device_state.allocated_bytes()
        changed = parse(name).apply(before.subject)
        measured = measure(before, changed, resident_bytes=resident, budget_s=budget_s, wall_s=wall_s)
        quality, unjudged = judged(before.subject, changed, evaluation)
        caveats = [*_caveats(changed, measured), *filter(None, [unjudged])]
        return replace(_joined(predicted, measured, caveats), quality=quality)

    return _guarded(unmeasured(name, expected), tried)


def verify_draft(
    before: Ready, name: str, expected: Expected, draft: Draft, budget_s: float = BUDGET_S, *, wall_s: float = WALL_S
) -> Verified:
    """Measure speculative decoding with a draft model, as `verify` measures an optimization."""

    def tried(predicted: Verified) -> Verified:
        tokens = expected.drafted or CHECKED
        drafted = drafting.measured(before, draft, tokens, budget_s=budget_s, wall_s=wall_s)
        noisy = noise(drafted.measured.before, drafted.measured.after)
        caveats = [*drafted.caveats, *drafted.measured.warnings, *([noisy] if noisy else [])]
        share = items_of(before.subject.settings)[0] / drafted.tokens
        before_us, after_us = (_scaled(each, share) for each in (drafted.measured.before, drafted.measured.after))
        of_a_step = replace(drafted.measured, before=before_us, after=after_us)
        return replace(_joined(predicted, of_a_step, caveats), acceptance=drafted.acceptance)

    whole = replace(expected, speedup=expected.whole or expected.speedup, whole=None)
    return _guarded(unmeasured(name, whole), tried)


def _scaled(times: Latency, share: float) -> Latency:
    return Latency(times.median_us * share, times.p10_us * share, times.p90_us * share, times.samples)


def _guarded(predicted: Verified, tried: Callable[[Verified], Verified]) -> Verified:
    if not device_works():
        return replace(predicted, error=POISONED)
    try:
        with _compiled_code_reset():
            return tried(predicted)
    except (TracekitError, RuntimeError, NotImplementedError, AssertionError, ImportError, TypeError, OSError) as error:
        return replace(predicted, error=str(failure_of(error)))


def _joined(predicted: Verified, measured: Measured, caveats: Sequence[str]) -> Verified:
    return replace(
        predicted,
        measured=measured.speedup,
        work_factor=measured.work,
        before=measured.before,
        after=measured.after,
        peak_memory_bytes=measured.peak_memory_bytes,
        difference=measured.difference,
        caveats=(*predicted.caveats, *caveats),
    )


def _drafts(changed: Subject) -> str:
    drafted, tokens = str(changed.checked), f"{changed.tokens_a_step:.1f}"
    return sentence(say("drafts-checked", of_step("drafted", "name", drafted), of_step("tokens", "name", tokens)))


def _caveats(changed: Subject, measured: Measured) -> list[str]:
    drafts = _drafts(changed) if changed.checked else ""
    noisy = noise(measured.before, measured.after)
    return [line for line in (drafts, *changed.caveats, *measured.warnings, noisy) if line]


def unmeasured(name: str, expected: Expected, error: str = "") -> Verified:
    """Return the prediction for an optimization, without a measurement. `error` says why it was not measured."""
    optimization = parse(name)
    return Verified(
        id=optimization.name,
        title=optimization.title,
        predicted=expected.speedup,
        measured=None,
        error=error,
        predicted_peak_bytes=expected.peak_bytes,
        caveats=(
            *((f"Not predicted. {expected.refused}",) if expected.refused else ()),
            *_draft_model_caveat(expected),
        ),
    )


def _draft_model_caveat(expected: Expected) -> tuple[str, ...]:
    if not expected.whole:
        return ()
    whole = expected.whole
    return (f"With a draft model, the prediction is {whole.expected:.2f} times ({whole.low:.2f} to {whole.high:.2f}).",)


def summary(
    settings: Settings, began: Start, results: Sequence[Verified], last: DeviceReading | None, *, own: bool = False
) -> Verification:
    """Return all measurements of a run, with what is needed to repeat them.

    With `own`, the user gave the inputs, and throughput is counted in steps.
    """
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
            *((sentence(say("random-weights")),) if settings.weights == "random" else ()),
            *device_state.drift(began.reading, last),
        ),
        before=began.reading,
        after=last,
    )


@contextmanager
def _compiled_code_reset() -> Iterator[None]:
    """Discard compiled code afterwards, so that each optimization compiles as it would alone."""
    try:
        yield
    finally:
        require("torch.compiler").reset()


def items_of(settings: Settings, *, own: bool = False) -> tuple[int, str]:
    """Return the number of items that one step processes, and their unit: tokens, images or steps."""
    if own:
        return 1, "steps"
    if settings.seq_len == 0:
        return settings.batch_size, "images"
    tokens = {"decode": 1, "generate": settings.new_tokens}.get(settings.workload, settings.seq_len)
    return settings.batch_size * tokens, "tokens"


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that a measurement depends on."""
    installed = environment.versions()
    for package in _APPLIED_WITH:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
