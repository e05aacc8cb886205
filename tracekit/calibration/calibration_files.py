"""Stores calibrations in the user's configuration folder, one file for each machine and GPU."""

import os
from pathlib import Path

from tracekit.calibration.value import Calibration, decode, encode, slug
from tracekit.capture.environment import cpu_state
from tracekit.reports.files import write_atomically


def configuration_folder() -> Path:
    """Return tracekit's folder in $XDG_CONFIG_HOME (by default ~/.config)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tracekit"


def folder() -> Path:
    return configuration_folder() / "calibration"


def machine_key(gpu: str) -> str:
    """Return the part of a file's name that identifies this machine and `gpu` (an id of gpus.toml; "" for none)."""
    return slug(cpu_state().name, os.cpu_count() or 1, gpu)


def path_of(gpu: str) -> Path:
    """Return the path of the calibration of this machine with a GPU."""
    return folder() / f"{machine_key(gpu)}.json"


def load(gpu: str) -> Calibration | None:
    """Return the calibration of this machine with a GPU, or None. Raises TracekitError for an invalid file."""
    path = path_of(gpu)
    return decode(path.read_bytes(), path) if path.is_file() else None


def store(calibration: Calibration, path: Path | None = None) -> Path:
    """Write a calibration to `path`, by default to where `load` reads it. Raises TracekitError if that fails."""
    path = path or folder() / f"{calibration.key}.json"
    write_atomically(path, encode(calibration))
    return path
