"""The times of a run's written kernels, in its folder: one GPU's, which later timings of the same GPU add to."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tracekit.analyzers.fusion.timed import Timed, TimedKernel
from tracekit.analyzers.hardware import GPU
from tracekit.reports.files import write_atomically
from tracekit.runs.folders import TIMED


class _Stored(msgspec.Struct, frozen=True):
    gpu: str
    kernels: dict[str, TimedKernel] = {}


def read(folder: Path, gpu: GPU) -> Timed:
    """Return the kernels that were timed on this GPU; empty if there are none, or another version wrote the file."""
    try:
        stored = msgspec.json.decode((folder / TIMED).read_bytes(), type=_Stored)
    except (OSError, msgspec.DecodeError):
        return {}
    return stored.kernels if stored.gpu == gpu.id else {}


def add(folder: Path, gpu: GPU, kernels: Mapping[str, TimedKernel]) -> None:
    """Write times beside those that the folder holds of other kernels on the same GPU."""
    if kernels:
        stored = _Stored(gpu.id, {**read(folder, gpu), **kernels})
        write_atomically(folder / TIMED, msgspec.json.format(msgspec.json.encode(stored), indent=1).decode() + "\n")
