"""Calibrations: measurements of a machine that `tracekit calibrate` stores for later predictions."""

from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from tracekit.analyzers.core import Interval, TracekitError
from tracekit.reports.words import write_atomically
from tracekit.run import configuration_folder, hardware_key, machine_key

__all__ = ["Calibration", "load", "store"]


VERSION = 1


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one machine with one GPU or none. Values that were not measured are absent or 0."""

    version: int = VERSION
    measured_at: str
    """Date and time in UTC, ISO 8601."""
    versions: dict[str, str]
    processor: str
    processors: int
    gpu: str = ""
    """An id of gpus.toml; "" without a GPU, or for an unknown one."""
    device_name: str = ""
    driver: str = ""
    host_us: dict[str, tuple[float, float, float]]
    """Class of op -> host time per op in microseconds: 10th percentile, median, 90th percentile of repetitions."""
    launch_us: float | UnsetType = UNSET
    """Microseconds from a launch call's return to the kernel's start on an idle device. Absent (in old files 0) if it
    could not be measured."""
    graph_node_us: float = 0.0
    """Device time in microseconds from one empty kernel of a replayed graph to the next."""
    copies_gb_per_s: dict[str, float] = {}
    """Bandwidth in GB/s of h2d and d2h copies with pinned and pageable memory, and of d2d (reads and writes)."""
    sustained_tflops: dict[str, float] = {}
    """Precision -> TFLOP/s (int8: TOP/s) of a large GEMM at steady state."""
    took_s: float = 0.0

    def __post_init__(self) -> None:
        for low, expected, high in self.host_us.values():
            Interval(low, expected, high)

    @property
    def key(self) -> str:
        """The part of a file's name that identifies the machine by its hardware, never by its host name."""
        return hardware_key(self.processor, self.processors, self.gpu or self.device_name)


def encode(calibration: Calibration) -> bytes:
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"


def decode(data: bytes, path: object) -> Calibration:
    """Decode the calibration in the file `path`. Raises TracekitError for other data or another version."""
    try:
        calibration = msgspec.json.decode(data, type=Calibration)
    except msgspec.DecodeError as error:
        raise TracekitError(
            f"{path} is not a calibration.", f"{error}.", "Measure again with: tracekit calibrate"
        ) from error
    if calibration.version != VERSION:
        raise TracekitError(
            f"{path} has an unsupported version.",
            f"It is {calibration.version}, not {VERSION}.",
            "Measure again: tracekit calibrate",
        )
    return calibration


def folder() -> Path:
    return configuration_folder() / "calibration"


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
