"""Applies what was recommended, measures it, and leaves the result beside the run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from analyzers.errors import InputError
from analyzers.verified import Verification, Verified
from reports.files import write_atomically
from tracekit.analysis import analyze
from tracekit.calibration import history
from tracekit.capture import record
from tracekit.capture.packages import require
from tracekit.capture.plan import plan
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Device, Settings
from tracekit.folders import RUN, TRACE, VERIFY
from tracekit.measurement import jobs, verification
from tracekit.measurement.device import reading as read_device
from tracekit.measurement.measure import Ready, ready
from tracekit.measurement.predicted import Expectations, Expected
from tracekit.measurement.subject import Subject
from tracekit.measurement.worker import Failure, Worker, checked
from tracekit.optimizations import parse
from tracekit.optimizations.planning import WORTHWHILE
from tracekit.outputs import write_outputs
from tracekit.verified_run import to_json

if TYPE_CHECKING:
    from torch import nn

ON_A_CPU = ("half-precision", "sdpa", "compile", "int8-dynamic")
"""What is tried where nothing can be predicted."""
_AFTER_PROFILER = (
    "Measured in a process that had been profiled: each launch takes 2 to 3 µs more than without. Name optimizations "
    "(apply=...) to have them measured first."
)


def verify_run(
    folder: Path, apply: Sequence[str] = (), *, top: int = 3, device: Device = "auto", say: Say = silent
) -> Verification:
    """Measure optimizations of the run in `folder` (names, several joined with "+"; none: the `top` recommended ones).

    The result is verify.json in the folder, and in its report. Raises TracekitError when the run cannot be repeated.
    """
    asked = settings_of(folder)
    settings = plan(replace(asked, device=_device(asked, device), name=""))
    same = settings.device == asked.device and settings.gpu == asked.gpu
    names = list(apply) or _recommended(folder, settings, top)
    expected = Expectations(folder / TRACE).of if same else _not_here
    predictions = [expected(name) for name in names]  # before anything is measured
    found = _measured(settings, names, predictions, say)
    write_atomically(folder / VERIFY, to_json(found))
    _remember(found, settings)
    write_outputs(folder)
    return found


def _remember(found: Verification, settings: Settings) -> None:
    """For later predictions on this machine."""
    if not settings.gpu:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for each in found.results:
        if each.predicted and each.measured:
            history.add(
                history.Verified(
                    verified_at=now,
                    gpu=settings.gpu,
                    model=settings.shown_name,
                    workload=settings.workload,
                    batch_size=settings.batch_size,
                    seq_len=settings.seq_len,
                    dtype=settings.dtype,
                    applied=each.id,
                    predicted=(each.predicted.low, each.predicted.expected, each.predicted.high),
                    measured=each.measured.expected,
                    versions=found.versions,
                )
            )


def _measured(settings: Settings, names: list[str], predictions: list[Expected], say: Say) -> Verification:
    """In a process of its own, which one optimization cannot spoil for the next."""
    results = []
    with Worker() as worker:
        say(f"building {settings.shown_name} on {settings.device}")
        began = checked(worker.call(jobs.start, settings))
        for name, prediction in zip(names, predictions, strict=True):
            say(f"measuring {parse(name).title}")
            found = worker.call(jobs.verified, settings, name, prediction)
            failed = isinstance(found, Failure)
            results.append(verification.not_measured(name, prediction, str(found)) if failed else found)
        last = checked(worker.call(jobs.read_device))
    return verification.summary(settings, began, results, last)


def verify(
    model: "nn.Module", inputs: Mapping[str, Any], apply: str | Sequence[str] = (), *, top: int = 3
) -> Verification:
    """Measure optimizations of a model of one's own, whose forward takes `inputs` as keywords.

    `apply` names optimizations (several joined with "+"): they are measured, then predicted from a profile. Without it,
    the model is profiled first, and those recommended are measured, at most `top`. The model is left as it is.
    """
    settings = _own_settings(model, inputs)
    before = ready(Subject(model=model.eval(), settings=settings, inputs=inputs))
    names = [apply] if isinstance(apply, str) and apply else list(apply)
    if names:
        found = _measured_here(before, names)
        with _profiled(before) as folder:
            expected = Expectations(folder / TRACE).of
            return replace(found, results=tuple(_beside(each, expected(each.id)) for each in found.results))
    with _profiled(before) as folder:
        names = _recommended(folder, settings, top)
        found = _measured_here(before, names, Expectations(folder / TRACE).of)
    return replace(found, caveats=(*found.caveats, *((_AFTER_PROFILER,) if before.subject.on_cuda else ())))


@contextmanager
def _profiled(before: Ready) -> Iterator[Path]:
    with TemporaryDirectory(prefix="tracekit-") as folder, before.subject.numerics():
        subject = before.subject
        record.write_run(subject.model, before.step, subject.settings, Path(folder) / TRACE, silent)
        yield Path(folder)


def _measured_here(before: Ready, names: list[str], expected: Callable[[str], Expected] | None = None) -> Verification:
    began = verification.start(before)
    predictions = [expected(name) if expected else Expected(None, None) for name in names]
    results = [verification.verified(before, *each) for each in zip(names, predictions, strict=True)]
    return verification.summary(before.subject.settings, began, results, read_device(), own=True)


def _beside(found: Verified, expected: Expected) -> Verified:
    """With what is predicted from a trace of the same run, which was recorded after it had been measured."""
    told = verification.foretold(found.id, expected)
    return replace(
        found,
        predicted=told.predicted,
        predicted_peak_bytes=told.predicted_peak_bytes,
        caveats=(*told.caveats, *found.caveats),
    )


def settings_of(folder: Path) -> Settings:
    """The settings that run.json holds. Raises InputError when it is not there."""
    path = folder / RUN
    if not path.is_file():
        raise InputError(
            f"{folder} is not a run's folder.", f"It has no {RUN}.", "Make one with: tracekit profile --model NAME."
        )
    stored = json.loads(path.read_text())["settings"]
    return Settings(**{each.name: stored[each.name] for each in fields(Settings) if each.name in stored})


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


def _recommended(folder: Path, settings: Settings, top: int) -> list[str]:
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


def _own_settings(model: "nn.Module", inputs: Mapping[str, Any]) -> Settings:
    weights = next(model.parameters())
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    dtype = names.get(str(weights.dtype).removeprefix("torch."))
    if dtype is None:
        raise InputError(f"The model's weights are {weights.dtype}.", "Of these nothing is known.", "Use floats.")
    tf32 = dtype == "fp32" and require("torch").get_float32_matmul_precision() != "highest"
    written_out = getattr(getattr(model, "config", None), "_attn_implementation", "") == "eager"
    batch = next((value.shape[0] for value in inputs.values() if getattr(value, "ndim", 0)), 1)
    return Settings(
        model=type(model).__name__,
        device="cuda" if weights.is_cuda else "cpu",
        dtype="tf32" if tf32 else dtype,  # type: ignore[arg-type]
        attention="eager" if written_out else "sdpa",
        batch_size=batch,
        weights="pretrained",
    )
