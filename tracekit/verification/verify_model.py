"""Optimizations of a model of one's own, in the process that it lives in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.verification import Verification, Verified
from tracekit.capture import record
from tracekit.capture.numerics import TORCH_NAMES
from tracekit.capture.packages import require
from tracekit.capture.progress import silent
from tracekit.capture.settings import Settings
from tracekit.measurement.device_state import reading as read_device
from tracekit.measurement.side_by_side import Ready, ready
from tracekit.runs.folders import TRACE
from tracekit.subjects.subject import Subject
from tracekit.verification import trial
from tracekit.verification.expectations import Expectations, Expected
from tracekit.verification.verify_run import recommended

if TYPE_CHECKING:
    from torch import nn

_AFTER_PROFILER = (
    "Measured in a process that had been profiled: each launch takes 2 to 3 µs more than without. Name optimizations "
    "(apply=...) to have them measured first."
)


def verify(
    model: "nn.Module", inputs: Mapping[str, Any], apply: str | Sequence[str] = (), *, top: int = 3
) -> Verification:
    """Measure optimizations of a model of one's own, whose forward takes `inputs` as keywords.

    `apply` names optimizations (several joined with "+"): they are measured, then predicted from a profile. Without it,
    the model is profiled first, and those recommended are measured, at most `top`. The model is left as it is.
    """
    require("torch")
    settings = _own_settings(model, inputs)
    before = ready(Subject(model=model.eval(), settings=settings, inputs=inputs))
    names = [apply] if isinstance(apply, str) and apply else list(apply)
    if names:
        found = _measured_here(before, names)
        with _profiled(before) as folder:
            expected = Expectations(folder / TRACE).of
            return replace(found, results=tuple(_beside(each, expected(each.id)) for each in found.results))
    with _profiled(before) as folder:
        names = recommended(folder, settings, top)
        found = _measured_here(before, names, Expectations(folder / TRACE).of)
    return replace(found, caveats=(*found.caveats, *((_AFTER_PROFILER,) if before.subject.on_cuda else ())))


@contextmanager
def _profiled(before: Ready) -> Iterator[Path]:
    with TemporaryDirectory(prefix="tracekit-") as folder, before.subject.numerics():
        subject = before.subject
        record.write_run(subject.model, before.step, subject.settings, Path(folder) / TRACE, silent)
        yield Path(folder)


def _measured_here(before: Ready, names: list[str], expected: Callable[[str], Expected] | None = None) -> Verification:
    began = trial.start(before)
    predictions = [expected(name) if expected else Expected(None, None) for name in names]
    results = [trial.verified(before, *each) for each in zip(names, predictions, strict=True)]
    return trial.summary(before.subject.settings, began, results, read_device(), own=True)


def _beside(found: Verified, expected: Expected) -> Verified:
    """With what is predicted from a trace of the same run, which was recorded after it had been measured."""
    told = trial.foretold(found.id, expected)
    return replace(
        found,
        predicted=told.predicted,
        predicted_peak_bytes=told.predicted_peak_bytes,
        caveats=(*told.caveats, *found.caveats),
    )


def _own_settings(model: "nn.Module", inputs: Mapping[str, Any]) -> Settings:
    weights = next(model.parameters())
    names = {name: dtype for dtype, name in TORCH_NAMES.items() if dtype != "tf32"}
    dtype = names.get(str(weights.dtype).removeprefix("torch."))
    if dtype is None:
        what = f"The model's weights are {weights.dtype}."
        raise InputError(what, "This dtype is not supported.", "Use float32, float16 or bfloat16.")
    tf32 = dtype == "fp32" and require("torch").get_float32_matmul_precision() != "highest"
    written_out = getattr(getattr(model, "config", None), "_attn_implementation", "") == "eager"
    batch = next((value.shape[0] for value in inputs.values() if getattr(value, "ndim", 0)), 1)
    return Settings(
        model=type(model).__name__,
        device="cuda" if weights.is_cuda else "cpu",
        dtype="tf32" if tf32 else dtype,
        attention="eager" if written_out else "sdpa",
        batch_size=batch,
        weights="pretrained",
    )
