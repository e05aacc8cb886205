"""Calibrations in the user's configuration, one file a machine and GPU."""

import os
from pathlib import Path

from tracekit.calibration.value import Calibration, decode, encode, slug
from tracekit.capture.environment import cpu_state
from tracekit.reports.files import write_atomically


def configuration_folder() -> Path:
    """Folder of what tracekit learned about this machine, in $XDG_CONFIG_HOME (by default ~/.config)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tracekit"


def folder() -> Path:
    return configuration_folder() / "calibration"


def machine_key(gpu: str) -> str:
    """Names this machine with a GPU (an id of gpus.toml; "": none) in names of files."""
    return slug(cpu_state().name, os.cpu_count() or 1, gpu)


def path_of(gpu: str) -> Path:
    """Where the calibration of this machine with a GPU is kept."""
    return folder() / f"{machine_key(gpu)}.json"


def load(gpu: str) -> Calibration | None:
    """The calibration of this machine with a GPU; None when it was not calibrated.

    Raises TracekitError when its file cannot be understood.
    """
    path = path_of(gpu)
    return decode(path.read_bytes(), path) if path.is_file() else None


def store(calibration: Calibration, path: Path | None = None) -> Path:
    """Write it to where `load` finds it, or to `path`. Raises TracekitError when that is not possible."""
    path = path or folder() / f"{calibration.key}.json"
    write_atomically(path, encode(calibration))
    return path
