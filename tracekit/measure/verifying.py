"""Applies the recommendations for a run, measures them, and saves the result in the run's folder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tracekit.advise import WORTHWHILE, SpeculativeDecoding, corrections, parse
from tracekit.analyzers.core import InputError, counted
from tracekit.analyzers.results import Verification, Verified
from tracekit.answer import analyze
from tracekit.capture import complete
from tracekit.measure import jobs, trial, verify_script
from tracekit.measure.drafting import Draft
from tracekit.measure.expectations import Expectations, Expected
from tracekit.measure.interleaved import WALL_S
from tracekit.measure.quality import Evaluation, evaluation_of
from tracekit.measure.worker import Failure, Worker, checked
from tracekit.profiling import write_outputs
from tracekit.reports.words import write_atomically
from tracekit.run import (
    DEVICES,
    TRACE,
    VERIFY,
    Device,
    Run,
    Say,
    Settings,
    joined,
    read,
    require,
    settings_of,
    silent,
    to_json,
    verification_of,
)

ON_A_CPU = ("half-precision", "sdpa", "compile", "int8-dynamic")
"""Optimizations to measure on a CPU, for which there are no predictions."""

_ANOTHER_PACE = 1.1
"""Ratio of two latencies of a run from which on the speed of its host counts as changed."""


def verify_run(
    folder: Path,
    apply: Sequence[str] = (),
    *,
    top: int = 3,
    device: Device = "auto",
    wall_s: float = WALL_S,
    draft: Draft | None = None,
    evaluation: str = "",
    say: Say = silent,
    verbose: bool = False,
) -> Verification:
    """Measure optimizations of the run in `folder`.

    `apply` names them (joined with "+" to apply several together); without it, the `top` recommendations are measured.
    After each one, verify.json in the folder is written, which keeps earlier results of other optimizations. The
    report is written at the end. `wall_s` limits the seconds of wall time for one optimization. With `draft`,
    speculative decoding runs that model, whose acceptance is measured. `evaluation` is a file with a text or token ids,
    or a function (module:name): it judges a model with trained weights. With `verbose`, libraries may print to stderr.
    Raises TracekitError if a name is unknown, or the run cannot be repeated.
    """
    wanted, judge = _wanted(apply, draft), evaluation_of(evaluation) if evaluation else None
    run = read(folder)
    with Worker(verbose=verbose) as worker:
        if run.script:
            again = _script(run, folder, device, draft, judge, verbose)
        else:
            worker.start()
            again = _model(folder, device, draft, judge, worker)
        verification = _verified(folder, again, wanted or again.recommended(folder, again.settings, top), wall_s, say)
    write_outputs(folder)
    return verification


def _verified(folder: Path, again: "_Again", names: Sequence[str], wall_s: float, say: Say) -> Verification:
    """Measure optimizations, and write each result into the run's folder."""
    expectations = Expectations(folder / TRACE) if again.same_device else None
    predictions = [again.predicted(name, expectations) for name in names]  # before anything is measured
    earlier = verification_of(folder)
    drafted = max((each.drafted for each in predictions), default=0)
    for measured in again.measured(names, predictions, wall_s, say):
        verification = _with_acceptance(measured, expectations, drafted) if expectations else measured
        if expectations and again.of_model:
            verification = _rescaled_to_pace(verification, again, expectations.latency_us, folder / TRACE)
        write_atomically(folder / VERIFY, to_json(joined(earlier, verification)))
        if again.of_model:
            _remember(verification.results[-1], verification.versions, again.settings)
    return verification


@dataclass(frozen=True)
class _Again:
    """How a run is repeated."""

    settings: Settings
    same_device: bool
    """Whether it is repeated on the device and the GPU that predictions start from."""
    measured: Callable[..., Iterator[Verification]]
    recommended: Callable[[Path, Settings, int], list[str]]
    of_model: bool
    """Whether its step is built and timed alone, as predictions of it are; else it is timed at a script's pace."""
    draft: Draft | None = None

    def predicted(self, name: str, expectations: Expectations | None) -> Expected:
        if expectations is None:
            return Expected(None, None, "The run was recorded on another device.")
        return expectations.predict(name, assisted=0 if self.draft and _drafts(name) else None)


def _model(folder: Path, device: Device, draft: Draft | None, judge: Evaluation | None, worker: Worker) -> _Again:
    stored = settings_of(folder)
    again = stored.changed(device=_device(stored.device, device), name="")
    settings = complete(again if again.device == stored.device else again.changed(gpu="", gpu_file=""))
    same = settings.device == stored.device and settings.gpu == stored.gpu
    return _Again(
        settings, same, partial(_measured, settings, worker, draft=draft, judge=judge), recommended, True, draft
    )


def _script(
    run: Run, folder: Path, device: Device, draft: Draft | None, judge: Evaluation | None, verbose: bool
) -> _Again:
    if draft or judge:
        name = "--draft" if draft else "--eval"
        what, why = f"{folder} is the run of a script.", f"{name} needs a model that tracekit builds."
        raise InputError(what, why, f"Leave out {name}.")
    again = verify_script.script_run_of(run, folder, _device(run.device, device))
    settings, measured = again.settings, partial(verify_script.measured, again, verbose=verbose)
    return _Again(settings, settings.device == run.device, measured, _applicable_to_script, False)


def _applicable_to_script(folder: Path, settings: Settings, top: int) -> list[str]:
    """Return the optimizations to measure of a script: on a CPU, those that can be applied around it."""
    names = recommended(folder, settings, top)
    return verify_script.applicable(names) if settings.device == "cpu" else names


def _wanted(apply: Sequence[str], draft: Draft | None) -> list[str]:
    """Return the names of the optimizations to measure. Raises InputError if none of them uses the given draft
    model."""
    names = list(dict.fromkeys(parse(name).name for name in apply)) or [SpeculativeDecoding.id] * bool(draft)
    if draft and not any(map(_drafts, names)):
        what = f"{', '.join(names)}: no draft model is used."
        raise InputError(what, "--draft is only for speculative decoding.", "Add: --apply speculative-decoding")
    return names


def _drafts(name: str) -> bool:
    return name.partition(":")[0] == SpeculativeDecoding.id and "+" not in name


def _with_acceptance(verification: Verification, expectations: Expectations, drafted: int) -> Verification:
    """Add the prediction for the acceptance that was measured last."""
    last = verification.results[-1]
    if last.acceptance is None or not 0 < last.acceptance < 1:
        return verification
    whole = expectations.predict(f"{SpeculativeDecoding.id}:{max(last.acceptance, 0.01):.2f}", drafted).whole
    if whole is None:
        return verification
    sentence = f"At this acceptance, {whole.expected:.2f} times ({whole.low:.2f} to {whole.high:.2f}) is predicted."
    results = (*verification.results[:-1], replace(last, caveats=(*last.caveats, sentence)))
    return replace(verification, results=results)


def _rescaled_to_pace(
    verification: Verification, again: _Again, recorded_us: float | None, trace: Path
) -> Verification:
    """Predict the last result again if the latency of the unmodified run differs from the recorded one."""
    last = verification.results[-1]
    if not (last.predicted and last.before and recorded_us) or _same(last.before.median_us, recorded_us):
        return verification
    expected = again.predicted(last.id, Expectations(trace, last.before))
    gain = expected.whole if last.acceptance is not None else expected.speedup
    return replace(verification, results=(*verification.results[:-1], replace(last, repredicted=gain)))


def _same(one_us: float, other_us: float) -> bool:
    return max(one_us, other_us) < _ANOTHER_PACE * min(one_us, other_us)


def _remember(result: Verified, versions: dict[str, str], settings: Settings) -> None:
    """Add the result to the history, which corrects later predictions on this machine."""
    predicted = result.repredicted or result.predicted
    if not (settings.gpu and predicted and result.measured):
        return
    corrections.add(
        corrections.Measurement(
            verified_at=datetime.now(UTC).isoformat(timespec="seconds"),
            gpu=settings.gpu,
            model=settings.shown_name,
            workload=settings.workload,
            batch_size=settings.batch_size,
            seq_len=settings.seq_len,
            dtype=settings.dtype,
            applied=result.id,
            predicted=(predicted.low, predicted.expected, predicted.high),
            measured=result.measured.expected,
            versions=versions,
        )
    )


def _measured(
    settings: Settings,
    worker: Worker,
    names: Sequence[str],
    predictions: Sequence[Expected],
    wall_s: float,
    say: Say,
    *,
    draft: Draft | None,
    judge: Evaluation | None,
) -> Iterator[Verification]:
    """Measure each optimization in the worker process, and yield all results so far after each one."""
    results: list[Verified] = []
    say(f"building {settings.shown_name} on {settings.device}")
    began = checked(worker.call(jobs.start, settings, judge))
    for name, prediction in counted([*zip(names, predictions, strict=True)], "measuring optimizations"):
        say(f"measuring {name} ({len(results) + 1} of {len(names)})")
        if draft and _drafts(name):
            answer = worker.call(jobs.verify_draft, settings, name, prediction, draft, wall_s)
        else:
            answer = worker.call(jobs.verify, settings, name, prediction, wall_s, judge)
        failed = isinstance(answer, Failure)
        results.append(trial.unmeasured(name, prediction, str(answer)) if failed else answer)
        yield trial.summary(settings, began, results, checked(worker.call(jobs.read_device)))


def _device(stored: str, device: Device) -> Device:
    """Return the device that repeats the run: for "auto", the device of the run."""
    chosen = DEVICES[DEVICES.index(stored)] if device == "auto" and stored in DEVICES else device
    if chosen != "model":
        return chosen
    if require("torch.cuda").is_available():
        return "cuda"
    raise InputError(
        "Nothing can be measured here.",
        "The run was modelled, and this machine has no GPU.",
        "Add --device cpu, to measure what a CPU can do.",
    )


def recommended(folder: Path, settings: Settings, top: int) -> list[str]:
    """Return the ids of the first `top` recommendations for a run. Raises InputError if there are none."""
    if settings.device == "cpu":
        return list(ON_A_CPU)
    names = [each.id for each in analyze(folder).recommendations[:top]]
    if not names:
        raise InputError(
            "Nothing is recommended for this run.",
            f"No optimization has a predicted speed-up of {WORTHWHILE:g} or more.",
            "Name optimizations to measure: --apply half-precision+cuda-graphs.",
        )
    return names
