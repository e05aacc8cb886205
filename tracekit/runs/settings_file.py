"""Reads the settings in a run's folder, with which the run is repeated."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from tracekit.analyzers.errors import InputError, reading
from tracekit.capture.settings import Settings
from tracekit.runs.folders import RUN

_KINDS = {**get_type_hints(Settings), "output": str}
_HINT = "Name a run's folder, which tracekit profile --model NAME writes."


def settings_of(folder: Path) -> Settings:
    """Return the settings in run.json. Raises InputError if the file is missing, or has no valid settings."""
    path = folder / RUN
    what = f"{path} cannot be read."
    with reading(what, _HINT):
        text = path.read_bytes()
    try:
        stored = json.loads(text)["settings"]
        return Settings(**{name: _value(name, stored[name]) for name in _KINDS if name in stored})
    except (ValueError, KeyError, TypeError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else "It does not contain the settings of a run."
        raise InputError(what, why, _HINT) from error


def gpu_of_module(folder: Path) -> str:
    """Return the GPU of a run of the user's own module; "" for another kind of run, or an unknown GPU."""
    try:
        stored = json.loads((folder / RUN).read_bytes())
        return str(stored["gpu"]) if "module" in stored else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _value(name: str, stored: object) -> Any:
    try:
        return msgspec.convert(stored, _KINDS[name])
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"Setting {name}: {error}.") from error
