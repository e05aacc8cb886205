"""Measures optimizations of the user's own model, in the user's process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Verification, Verified, say
from tracekit.apply import Subject
from tracekit.capture import TORCH_NAMES, device_run
from tracekit.measure import trial
from tracekit.measure.device_state import reading as read_device
from tracekit.measure.expectations import Expectations, Expected
from tracekit.measure.side_by_side import Ready, ready
from tracekit.measure.verifying import recommended
from tracekit.reports.words import sentence
from tracekit.run import TRACE, Settings, require, silent

if TYPE_CHECKING:
    from torch import nn


def verify(
    model: "nn.Module", inputs: Mapping[str, Any], apply: str | Sequence[str] = (), *, top: int = 3
) -> Verification:
    """Measure optimizations of your own model, whose forward takes `inputs` as keyword arguments.

    `apply` names optimizations (joined with "+" to apply several together). They are measured, and then predicted from
    a profile. Without it, the model is profiled first, and its `top` recommendations are measured. The model itself is
    not changed.
    """
    require("torch")
    settings = _own_settings(model, inputs)
    before = ready(Subject(model=model.eval(), settings=settings, inputs=inputs))
    names = [apply] if isinstance(apply, str) and apply else list(apply)
    if names:
        verification = _measure(before, names)
        with _profiled(before) as folder:
            if any("fused" in name for name in names):
                from tracekit.apply import keep_graph  # needs torch

                keep_graph(before.subject, folder)
            predict = Expectations(folder / TRACE).predict
            results = tuple(_with_prediction(each, predict(each.id)) for each in verification.results)
            return replace(verification, results=results)
    with _profiled(before) as folder:
        names = recommended(folder, settings, top)
        verification = _measure(before, names, Expectations(folder / TRACE).predict)
    profiled = (sentence(say("process-was-profiled")),) if before.subject.on_cuda else ()
    return replace(verification, caveats=(*verification.caveats, *profiled))


@contextmanager
def _profiled(before: Ready) -> Iterator[Path]:
    with TemporaryDirectory(prefix="tracekit-") as folder, before.subject.numerics():
        subject = before.subject
        device_run.write_run(subject.model, before.step, subject.settings, Path(folder) / TRACE, silent)
        yield Path(folder)


def _measure(before: Ready, names: list[str], predict: Callable[[str], Expected] | None = None) -> Verification:
    began = trial.start(before)
    predictions = [predict(name) if predict else Expected(None, None) for name in names]
    results = [trial.verify(before, *each) for each in zip(names, predictions, strict=True)]
    return trial.summary(before.subject.settings, began, results, read_device(), own=True)


def _with_prediction(measured: Verified, expected: Expected) -> Verified:
    """Add the prediction from a trace of the same run that was recorded after the measurement."""
    predicted = trial.unmeasured(measured.id, expected)
    return replace(
        measured,
        predicted=predicted.predicted,
        predicted_peak_bytes=predicted.predicted_peak_bytes,
        caveats=(*predicted.caveats, *measured.caveats),
    )


def _own_settings(model: "nn.Module", inputs: Mapping[str, Any]) -> Settings:
    weights = next(model.parameters())
    names = {name: dtype for dtype, name in TORCH_NAMES.items() if dtype != "tf32"}
    dtype = names.get(str(weights.dtype).removeprefix("torch."))
    if dtype is None:
        what = f"The model's weights are {weights.dtype}."
        raise InputError(what, "This dtype is not supported.", "Use float32, float16 or bfloat16.")
    tf32 = dtype == "fp32" and require("torch").get_float32_matmul_precision() != "highest"
    attention = getattr(getattr(model, "config", None), "_attn_implementation", "")
    batch = next((value.shape[0] for value in inputs.values() if getattr(value, "ndim", 0)), 1)
    return Settings(
        model=type(model).__name__,
        device="cuda" if weights.is_cuda else "cpu",
        dtype="tf32" if tf32 else dtype,
        attention="eager" if attention == "eager" else "sdpa",
        batch_size=batch,
        weights="pretrained",
    )
