"""Read Nsight Compute's report files, `.ncu-rep`, with NVIDIA's Python module (the extra `ncu`)."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from tracekit.analyzers.core import InputError, MissingPackageError, installing
from tracekit.analyzers.trace.ncu import pages as shape
from tracekit.analyzers.trace.ncu import reader
from tracekit.analyzers.trace.ncu.metrics import wanted
from tracekit.analyzers.trace.ncu.pages import Launches, scale
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

_IDENTITY = {
    shape.DEVICE_ID: "launch__device_id",
    shape.STREAM: "launch__stream_id",
    shape.DEVICE_NAME: "device__attribute_display_name",
}
_SIZES = {shape.GRID: "launch__grid_dim_{}", shape.BLOCK: "launch__block_dim_{}"}
_CAPABILITY = ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor")


def read(source: Source) -> Trace:
    """Read a report. Raises MissingPackageError without the module, and InputError if the report contains no launch."""
    module = _module()
    with _as_file(source) as path:
        actions = list(_actions(module.load_report(str(path))))
    whole = [action for action in actions if action]
    if not whole:
        raise InputError(
            f"{source.name} contains no kernel that Nsight Compute measured.",
            "Its module finds none in it; the file may be cut off.",
            "Save the report again.",
        )
    return reader.trace_of(_launches(whole, cut=len(whole) < len(actions)), source.damage)


def _module() -> ModuleType:
    try:
        return import_module("ncu_report")
    except ImportError as error:
        raise MissingPackageError(
            "A .ncu-rep file needs NVIDIA's Python module to be read.",
            "The package ncu-report is not installed.",
            f"{installing('ncu_report')}. Or export the report: ncu --import FILE --csv --page raw > FILE.csv",
        ) from error


@contextmanager
def _as_file(source: Source) -> Iterator[Path]:
    """Write the source to a file, because the module only reads files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.ncu-rep"
        with path.open("wb") as file:
            file.writelines(source.blocks())
        yield path


def _actions(context: Any) -> Iterator[dict[str, Any]]:
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        yield from (_measured(part.action_by_idx(index)) for index in range(part.num_actions()))


def _measured(action: Any) -> dict[str, Any]:
    """Return metrics by name in base units, and the kernel's name; nothing if the file is truncated there."""
    names = action.metric_names()
    if not names:
        return {}
    values = {name: _value(action.metric_by_name(name)) for name in names if _used(name)}
    return {**values, shape.NAME: action.name(action.NameBase_DEMANGLED)}


def _used(name: str) -> bool:
    sizes = [size.format(axis) for size in _SIZES.values() for axis in "xyz"]
    return wanted(name) or name in {*_IDENTITY.values(), *_CAPABILITY, *sizes}


def _value(metric: Any) -> float | str:
    value = metric.value()
    return value if isinstance(value, str) else float(value) * scale(metric.unit() or "")[0]


def _launches(actions: list[dict[str, Any]], cut: bool) -> Launches:
    identity = pd.DataFrame([_identity(action) for action in actions], columns=list(shape.IDENTITY), dtype=object)
    numbers = [{name: value for name, value in a.items() if wanted(name)} for a in actions]
    return Launches(identity, pd.DataFrame(numbers, index=range(len(actions)), dtype="float64"), cut=cut)


def _identity(action: dict[str, Any]) -> dict[str, str]:
    named = {column: _text(action.get(metric, "")) for column, metric in _IDENTITY.items()}
    sizes = {
        column: f"({', '.join(_text(action.get(size.format(axis), '')) for axis in 'xyz')})"
        for column, size in _SIZES.items()
    }
    capability = ".".join(_text(action.get(name, "")) for name in _CAPABILITY)
    return {shape.NAME: str(action[shape.NAME]), **named, **sizes, shape.CAPABILITY: capability}


def _text(value: float | str) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
