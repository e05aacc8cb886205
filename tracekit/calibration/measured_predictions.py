"""The history of predictions that were measured on this machine, one line of JSON each."""

import os
from pathlib import Path

import msgspec

from tracekit.analyzers.errors import TracekitError
from tracekit.calibration.calibration_files import configuration_folder, machine_key


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction and the speed-up measured afterwards."""

    verified_at: str
    """Date and time in UTC, ISO 8601."""
    gpu: str
    """An id of gpus.toml."""
    model: str
    workload: str
    batch_size: int
    seq_len: int
    dtype: str
    applied: str
    """Ids of optimizations, joined with "+" as for `predict --apply`."""
    predicted: tuple[float, float, float]
    """Speed-up: low, expected, high."""
    measured: float
    """Speed-up."""
    versions: dict[str, str] = {}


def path_of(gpu: str) -> Path:
    return configuration_folder() / "history" / f"{machine_key(gpu)}.jsonl"


def add(measurement: Measurement) -> Path:
    """Append a measurement to the history of this machine with its GPU, and return the file's path."""
    path = path_of(measurement.gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, msgspec.json.encode(measurement) + b"\n")
    finally:
        os.close(handle)
    return path


def read(gpu: str) -> list[Measurement]:
    """Return the history of this machine with a GPU, oldest first. Raises TracekitError for an invalid line."""
    path = path_of(gpu)
    if not path.is_file():
        return []
    try:
        return [msgspec.json.decode(line, type=Measurement) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise TracekitError(
            f"{path} cannot be read.", f"{error}.", "Remove the line or the file; predictions are then made without it."
        ) from error
