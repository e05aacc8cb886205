"""Applies what was recommended, measures it, and leaves the result beside the run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.verification import Verification, Verified
from tracekit.answers.full_analysis import analyze
from tracekit.calibration import history
from tracekit.capture.packages import require
from tracekit.capture.plan import plan
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Device, Settings
from tracekit.measurement import jobs
from tracekit.measurement.interleaved import WALL_S
from tracekit.measurement.worker import Failure, Worker, checked
from tracekit.optimizations import parse
from tracekit.planning.search import WORTHWHILE
from tracekit.reports.files import write_atomically
from tracekit.runs.folders import TRACE, VERIFY
from tracekit.runs.outputs import write_outputs
from tracekit.runs.settings_file import settings_of
from tracekit.runs.verification_file import joined, to_json, verified_beside
from tracekit.verification import trial
from tracekit.verification.expectations import Expectations, Expected

ON_A_CPU = ("half-precision", "sdpa", "compile", "int8-dynamic")
"""What is tried where nothing can be predicted."""


def verify_run(
    folder: Path,
    apply: Sequence[str] = (),
    *,
    top: int = 3,
    device: Device = "auto",
    wall_s: float = WALL_S,
    say: Say = silent,
    verbose: bool = False,
) -> Verification:
    """Measure optimizations of the run in `folder` (names, several joined with "+"; none: the `top` recommended ones).

    After each of them verify.json in the folder is written, with what it held of others; at the end the report. Raises
    TracekitError when a name is not known, or the run cannot be repeated. `wall_s` is the time
    that the comparison of one may take. With `verbose`, libraries may print to stderr.
    """
    wanted = list(dict.fromkeys(parse(name).name for name in apply))
    asked = settings_of(folder)
    settings = plan(replace(asked, device=_device(asked, device), name=""))
    same = settings.device == asked.device and settings.gpu == asked.gpu
    names = wanted or recommended(folder, settings, top)
    expected = Expectations(folder / TRACE).of if same else _not_here
    predictions = [expected(name) for name in names]  # before anything is measured
    earlier = verified_beside(folder)
    for found in _measured(settings, names, predictions, wall_s, say, verbose=verbose):
        write_atomically(folder / VERIFY, to_json(joined(earlier, found)))
        _remember(found.results[-1], found.versions, settings)
    write_outputs(folder)
    return found


def _remember(found: Verified, versions: dict[str, str], settings: Settings) -> None:
    """For later predictions on this machine."""
    if not (settings.gpu and found.predicted and found.measured):
        return
    history.add(
        history.Verified(
            verified_at=datetime.now(UTC).isoformat(timespec="seconds"),
            gpu=settings.gpu,
            model=settings.shown_name,
            workload=settings.workload,
            batch_size=settings.batch_size,
            seq_len=settings.seq_len,
            dtype=settings.dtype,
            applied=found.id,
            predicted=(found.predicted.low, found.predicted.expected, found.predicted.high),
            measured=found.measured.expected,
            versions=versions,
        )
    )


def _measured(
    settings: Settings, names: Sequence[str], predictions: Sequence[Expected], wall_s: float, say: Say, *, verbose: bool
) -> Iterator[Verification]:
    """What was measured so far, after each. In a process of its own, which one cannot spoil for the next."""
    results: list[Verified] = []
    with Worker(verbose=verbose, say=say) as worker:
        say(f"building {settings.shown_name} on {settings.device}")
        began = checked(worker.call(jobs.start, settings))
        for name, prediction in zip(names, predictions, strict=True):
            say(f"measuring {name} ({len(results) + 1} of {len(names)})")
            found = worker.call(jobs.verified, settings, name, prediction, wall_s)
            failed = isinstance(found, Failure)
            results.append(trial.not_measured(name, prediction, str(found)) if failed else found)
            yield trial.summary(settings, began, results, checked(worker.call(jobs.read_device)))


def _device(asked: Settings, device: Device) -> Device:
    """Where to repeat the run: where it ran, unless told otherwise."""
    chosen = asked.device if device == "auto" else device
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
    if settings.device == "cpu":
        return list(ON_A_CPU)
    found = [each.id for each in analyze(folder).recommendations[:top]]
    if not found:
        raise InputError(
            "Nothing is recommended for this run.",
            f"No optimization promises {WORTHWHILE:g} times or more.",
            "Name what to measure: --apply half-precision+cuda-graphs.",
        )
    return found


def _not_here(_: str) -> Expected:
    return Expected(None, None, "The run was of another device.")
