"""Quantizes a model's weights, judges them beside the original ones, and writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import UnknownNameError
from tracekit.analyzers.cost import nearest
from tracekit.analyzers.results import Quality
from tracekit.apply import METHODS, Subject, quantized
from tracekit.capture import complete, models
from tracekit.measure.configurations import FORMATS, TRAINED
from tracekit.measure.quality import Evaluation, check, judged, whole_windows
from tracekit.quantization import Group, save
from tracekit.run import Settings


@dataclass(frozen=True)
class Written:
    """What a quantized model is beside the original one."""

    name: str
    bytes_before: int
    """Of all parameters and buffers, in the 16-bit type."""
    bytes_after: int
    quality: Quality | None
    caveat: str


def check_format(name: str) -> None:
    """Raise UnknownNameError if it is neither a format nor something that is trained."""
    known = [*FORMATS, *TRAINED]
    if name not in known:
        raise UnknownNameError(f"'{name}' is not a format.", hint=nearest(name, known))


def quantize_to(
    path: Path, settings: Settings, to: str, group: Group, calibration: str, steps: int, evaluation: Evaluation | None
) -> Written:
    """Write the model of the settings in a format, or with what was trained beside or in one.

    `calibration` is the text that calibrates and trains. Raises TracekitError for what cannot be done with this model.
    """
    settings = complete(settings)
    before = Subject(model=models.build_for(settings), settings=settings).in_half()
    if evaluation:
        check(before, evaluation)
    after = _changed(before, to, group, calibration, steps)
    quality, caveat = judged(before, after, evaluation)
    save(after.model, path)
    return Written(settings.shown_name, _bytes(before), _bytes(after), quality, caveat)


def _changed(subject: Subject, to: str, group: Group, calibration: str, steps: int) -> Subject:
    def windows(given: Subject) -> Sequence[Any]:
        return whole_windows(given, calibration)

    if to in TRAINED:
        return TRAINED[to].applied(subject, windows, steps)
    if to in METHODS:
        return quantized.with_own(subject, to, quantized.calibration_inputs(windows(subject)), group)
    return quantized.with_own(subject, to, group_size=group)


def _bytes(subject: Subject) -> int:
    tensors = {id(each): each for each in (*subject.model.parameters(), *subject.model.buffers())}
    return sum(each.numel() * each.element_size() for each in tensors.values())
