"""Applies what was recommended, measures it, and leaves the result beside the run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from analyzers.errors import InputError
from analyzers.verified import Verification
from reports.files import write_atomically
from tracekit.analysis import analyze
from tracekit.capture import models, record
from tracekit.capture.packages import require
from tracekit.capture.plan import plan
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Device, Settings
from tracekit.folders import RUN, TRACE, VERIFY
from tracekit.measurement import verification
from tracekit.measurement.measure import ready
from tracekit.measurement.predicted import Expectations, Expected
from tracekit.measurement.subject import Subject
from tracekit.optimizations.planning import WORTHWHILE
from tracekit.outputs import write_outputs
from tracekit.verified_run import to_json

if TYPE_CHECKING:
    from torch import nn

ON_A_CPU = ("half-precision", "sdpa", "compile", "int8-dynamic")
"""What is tried where nothing can be predicted."""


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
    say(f"building {settings.shown_name} on {settings.device}")
    before = ready(Subject(model=models.build_for(settings), settings=settings))
    expected = Expectations(folder / TRACE).of if same else _not_here
    found = verification.verify_all(before, names, expected, say)
    write_atomically(folder / VERIFY, to_json(found))
    write_outputs(folder)
    return found


def verify(
    model: "nn.Module", inputs: Mapping[str, Any], apply: str | Sequence[str] = (), *, top: int = 3
) -> Verification:
    """Measure optimizations of a model of one's own, whose forward takes `inputs` as keywords.

    It is profiled first, to predict from; `apply` names optimizations (several joined with "+"); by default those
    recommended are measured, at most `top`. The model is left as it is.
    """
    settings = _own_settings(model, inputs)
    before = ready(Subject(model=model.eval(), settings=settings, inputs=inputs))
    with TemporaryDirectory(prefix="tracekit-") as folder:
        path = Path(folder) / TRACE
        with before.subject.numerics():
            record.write_run(model, before.step, settings, path, silent)
        asked = [apply] if isinstance(apply, str) and apply else list(apply)
        names = asked or _recommended(Path(folder), settings, top)
        return verification.verify_all(before, names, Expectations(path).of, silent)


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
