"""Reads and writes kernels.json, the times of written kernels in a run's folder."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tracekit.analyzers.core import Amount, InputError, Interval, decoded
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.fuse import TimedKernel
from tracekit.reports.words import write_atomically
from tracekit.run.folder import TIMED


class WrittenKernels(msgspec.Struct, frozen=True):
    """Measurements and predictions of a run's written kernels on one GPU."""

    gpu: str
    kernels: dict[str, TimedKernel] = {}
    """Times of the timed kernels."""
    speedup: tuple[Amount, Amount, Amount] | None = None
    """Predicted speed-up of the step with all kernels: low, expected, high. None: they were not written."""

    def __post_init__(self) -> None:
        _ = self.gain

    @property
    def gain(self) -> Interval | None:
        return Interval(*self.speedup) if self.speedup else None


def read_kernel_times(folder: Path, gpu: GPU) -> WrittenKernels:
    """Return a run's kernels on this GPU; empty if there are none, or another version wrote the file."""
    try:
        stored = decoded(folder / TIMED, msgspec.json.Decoder(WrittenKernels).decode, "")
    except InputError:
        return WrittenKernels(gpu.id)
    return stored if stored.gpu == gpu.id else WrittenKernels(gpu.id)


def add(folder: Path, gpu: GPU, kernels: Mapping[str, TimedKernel]) -> None:
    """Write times into the folder, beside those of other kernels on the same GPU."""
    if kernels:
        stored = read_kernel_times(folder, gpu)
        _write(folder, msgspec.structs.replace(stored, kernels={**stored.kernels, **kernels}))


def keep_gain(folder: Path, gpu: GPU, speedup: Interval) -> None:
    """Write the predicted speed-up of the step with all kernels."""
    ends = speedup.low, speedup.expected, speedup.high
    _write(folder, msgspec.structs.replace(read_kernel_times(folder, gpu), speedup=ends))


def _write(folder: Path, stored: WrittenKernels) -> None:
    write_atomically(folder / TIMED, msgspec.json.format(msgspec.json.encode(stored), indent=1).decode() + "\n")
