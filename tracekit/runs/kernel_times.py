"""The times of a run's written kernels and the gain predicted with them, in its folder, for one GPU."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tracekit.analyzers.fusion.timed import Timed, TimedKernel
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.reports.files import write_atomically
from tracekit.runs.folders import TIMED


class _Stored(msgspec.Struct, frozen=True):
    gpu: str
    kernels: dict[str, TimedKernel] = {}
    speedup: tuple[float, float, float] | None = None
    """Predicted speed-up of the step with all kernels: low, expected, high."""


def read(folder: Path, gpu: GPU) -> Timed:
    """Return the kernels that were timed on this GPU; empty if there are none, or another version wrote the file."""
    return _stored(folder, gpu).kernels


def gain(folder: Path, gpu: GPU) -> Interval | None:
    """Return the predicted speed-up of the step with all kernels; None if they were not written for this GPU."""
    speedup = _stored(folder, gpu).speedup
    return Interval(*speedup) if speedup else None


def add(folder: Path, gpu: GPU, kernels: Mapping[str, TimedKernel]) -> None:
    """Write times beside those that the folder holds of other kernels on the same GPU."""
    if kernels:
        stored = _stored(folder, gpu)
        _write(folder, msgspec.structs.replace(stored, kernels={**stored.kernels, **kernels}))


def keep_gain(folder: Path, gpu: GPU, speedup: Interval) -> None:
    """Write the predicted speed-up of the step with all kernels."""
    ends = speedup.low, speedup.expected, speedup.high
    _write(folder, msgspec.structs.replace(_stored(folder, gpu), speedup=ends))


def _stored(folder: Path, gpu: GPU) -> _Stored:
    try:
        stored = msgspec.json.decode((folder / TIMED).read_bytes(), type=_Stored)
    except (OSError, msgspec.DecodeError):
        return _Stored(gpu.id)
    return stored if stored.gpu == gpu.id else _Stored(gpu.id)


def _write(folder: Path, stored: _Stored) -> None:
    write_atomically(folder / TIMED, msgspec.json.format(msgspec.json.encode(stored), indent=1).decode() + "\n")
