"""A baseline: a small JSON file in the repository with the values that checks compare a run with."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta, Struct, to_builtins

from tracekit.analyzers.check import RunTimes, Times
from tracekit.analyzers.compare import StepSummary, condensed
from tracekit.analyzers.core import Amount, InputError, Int32, Int64, UnknownNameError, limits
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import PLACES, Kind, Runtime, Source
from tracekit.analyzers.trace import CaptureInfo, Latency
from tracekit.check.run_values import Recorded
from tracekit.reports.words import escaped_json, write_atomically
from tracekit.version import __version__

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
_LEAST_PART = 1e-3
"""Parts with a smaller share of the step's work are not saved."""
_TEXTS = ("family", "kernel", "op", "precision")
_T = TypeVar("_T")


_Texts = list[Annotated[int, Meta(ge=-1, le=2**31 - 1)]]
"""Indices into a table's `texts`; -1: none."""


class _WorkColumns(Struct, forbid_unknown_fields=True):
    """The columns of `step_work`."""

    ns: list[Amount]
    busy_ns: list[Amount]
    kernels: list[Amount]
    flops: list[Amount | None]
    bytes: list[Amount | None]
    family: _Texts
    kernel: _Texts
    op: _Texts
    precision: _Texts
    layer: list[Int32]
    signature: list[Amount]


class _LayerColumns(Struct, forbid_unknown_fields=True):
    path: list[str] = []
    type: list[str] = []
    parent: list[Int32] = []


class _PlaceColumns(Struct, forbid_unknown_fields=True):
    counter: list[str] = []
    layer: list[str] = []
    function: list[str] = []
    location: list[str] = []
    count: list[Amount] = []


class _Table(Struct, Generic[_T], forbid_unknown_fields=True):
    """A table by columns."""

    columns: _T
    texts: list[str] = []

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(to_builtins(self.columns))


class _Step(Struct, forbid_unknown_fields=True):
    format: str
    device: Literal["gpu", "cpu"]
    runtime: Runtime
    trains: bool
    unprofiled: Latency | None
    wall_ns: Amount
    steps: Annotated[int, Meta(ge=1, le=2**31)]
    graph_share: Annotated[float, Meta(ge=0, le=1)]
    work: _Table[_WorkColumns]
    layers: _Table[_LayerColumns]
    idle: dict[str, Amount]


class Baseline(Struct, forbid_unknown_fields=True):
    """The contents of the file."""

    tracekit_baseline: int
    tracekit: str
    name: str
    saved: str
    """Date and time in UTC."""
    commit: str
    fingerprint: dict[str, str | Int64]
    counters: dict[str, Times]
    """The values of the steps, in rising order; one value for a constant."""
    capture: CaptureInfo | None
    places: _Table[_PlaceColumns]
    runs: Annotated[list[RunTimes], Meta(min_length=1)]
    step: _Step


def path_of(name: str, folder: Path) -> Path:
    """Return the path of a baseline. Raises InputError if its name cannot be that of a file."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a baseline.",
            "Its file has that name.",
            "Use letters, digits, '-', '_' and '.'.",
        )
    return folder / f"{name}.json"


def names_in(folder: Path) -> list[str]:
    """Return the names of the baselines in a folder."""
    return sorted(path.stem for path in folder.glob("*.json") if _NAME.fullmatch(path.stem))


def save(measured: Recorded, name: str, folder: Path, commit: str) -> Path:
    """Write a baseline, replacing one of the same name, and return its file."""
    path = path_of(name, folder)
    held = Baseline(
        tracekit_baseline=FORMAT,
        tracekit=__version__,
        name=name,
        saved=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        fingerprint=measured.fingerprint,
        counters={counter: list(values) for counter, values in measured.counters.items()},
        capture=measured.step.source.capture,
        places=_Table(msgspec.convert(measured.places.to_dict("list"), _PlaceColumns)),
        runs=[_trimmed(run) for run in measured.runs],
        step=_step(measured.step),
    )
    write_atomically(path, _text(held))
    return path


def read(name: str, folder: Path) -> Baseline:
    """Read a baseline. Raises UnknownNameError if there is none, InputError if the file is damaged."""
    path = path_of(name, folder)
    if not path.is_file():
        names = ", ".join(names_in(folder)) or "none"
        raise UnknownNameError(
            f"There is no baseline {name!r} in {folder}.",
            f"Baselines there: {names}.",
            f"Make it with: tracekit check RUN --save {name}.",
        )
    what, hint = f"{path} cannot be read.", f"Restore it, or save it again: tracekit check RUN --save {name}."
    held = limits.decoded(path, msgspec.json.Decoder(Baseline).decode, hint)
    if held.tracekit_baseline != FORMAT:
        raise InputError(what, f"It has format {held.tracekit_baseline}; this version reads {FORMAT}.", hint)
    return held


def as_recorded(held: Baseline, path: Path) -> Recorded:
    """Return the contents of the file in the form that a check needs.

    Raises InputError if its tables do not fit together.
    """
    try:
        return Recorded(
            name=held.name,
            fingerprint=dict(held.fingerprint),
            runs=tuple(held.runs),
            counters={name: tuple(values) for name, values in held.counters.items()},
            places=PLACES.frame(to_builtins(held.places.columns)),
            step=_summary(held),
        )
    except limits.DAMAGE as error:
        raise InputError(
            f"{path} cannot be read.",
            f"Its tables do not fit together ({error}).",
            f"Restore it, or save it again: tracekit check RUN --save {held.name}.",
        ) from error


def _text(held: Baseline) -> str:
    """Return JSON with one line per entry, so that a changed entry is a small diff."""
    entries = msgspec.to_builtins(held)
    lines = [f"{_json(name)}: {_json(value)}" for name, value in entries.items() if name != "runs"]
    runs = ",\n".join(_json(run) for run in entries["runs"])
    return escaped_json("{\n" + ",\n".join([*lines, f'"runs": [\n{runs}\n]']) + "\n}\n")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _trimmed(run: RunTimes) -> RunTimes:
    """Return the times without the parts that no check would judge."""
    parts = {}
    for kind, times in run.parts.items():
        least = _LEAST_PART * sum(map(np.median, times.values()))
        parts[kind] = {name: values for name, values in times.items() if np.median(values) >= least}
    return msgspec.structs.replace(run, parts=parts)


def _step(step: StepSummary) -> _Step:
    work = condensed(step.work)
    codes, texts = pd.factorize(np.concatenate([work[name].to_numpy(dtype=object) for name in _TEXTS]))
    coded = dict(zip(_TEXTS, np.split(codes, len(_TEXTS)), strict=True)) if len(work) else {}
    columns = {str(name): _values(coded.get(str(name), work[name].to_numpy())) for name in work.columns}
    return _Step(
        format=step.source.format,
        device=step.source.device,
        runtime=step.source.runtime,
        trains=step.source.trains,
        unprofiled=step.unprofiled,
        wall_ns=step.wall_ns,
        steps=step.steps,
        graph_share=step.graph_share,
        work=_Table(_WorkColumns(**columns), [str(text) for text in texts]),
        layers=_Table(msgspec.convert(step.layers.to_dict("list"), _LayerColumns)),
        idle=step.idle,
    )


def _values(column: Any) -> list[Any]:
    """Return rounded numbers, with None for NaN."""
    if column.dtype.kind != "f":
        return column.tolist()
    return [None if not np.isfinite(value) else round(value, 3) for value in column.tolist()]


def _summary(held: Baseline) -> StepSummary:
    step, known = held.step, held.fingerprint
    gpu = next((gpu for gpu in hardware.all_gpus() if gpu.id == known.get("gpu")), None)
    work, layers = step.work.frame(), step.layers.frame()
    texts = np.array([*step.work.texts, ""], dtype=object)
    for name in work.columns:
        values = work[name].to_numpy(dtype=np.int64 if name in (*_TEXTS, "layer") else float)
        work[name] = texts[values] if name in _TEXTS else values
    if not work["layer"].between(-1, len(layers) - 1).all():
        raise ValueError("work of layers that the table of layers lacks")
    if not layers["parent"].between(-1, np.arange(len(layers)) - 1).all():
        raise ValueError("layers inside themselves")
    source = Source(
        kind=msgspec.convert(known.get("kind", "imported"), Kind),
        format=step.format,
        device=step.device,
        device_name=str(known.get("device", "")),
        gpu=gpu,
        precision=str(known.get("dtype", "")),
        capture=held.capture,
        trains=step.trains,
        runtime=step.runtime,
    )
    return StepSummary(
        source, step.unprofiled, step.wall_ns, step.steps, step.graph_share, work, layers, dict(step.idle)
    )
