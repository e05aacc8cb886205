"""What a calibration holds. It is written as JSON, for people to read."""

import re

import msgspec
from msgspec import UNSET, UnsetType

from tracekit.analyzers.errors import TracekitError

VERSION = 1


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one machine with one GPU, or with none. What was not measured is absent, or 0."""

    version: int = VERSION
    measured_at: str
    """Date and time, UTC, ISO 8601."""
    versions: dict[str, str]
    processor: str
    processors: int
    gpu: str = ""
    """Id of gpus.toml; "" when there is none, or one that is not known."""
    device_name: str = ""
    driver: str = ""
    host_us: dict[str, tuple[float, float, float]]
    """Class of op -> host time of one, in microseconds: 10th percentile, median, 90th percentile of repetitions."""
    launch_us: float | UnsetType = UNSET
    """From a launch call's return to the kernel's start on an idle device; absent, and 0 in old files: not told."""
    graph_node_us: float = 0.0
    """Device time from one empty kernel of a replayed graph to the next."""
    copies_gb_per_s: dict[str, float] = {}
    """h2d and d2h, from pinned and pageable memory; d2d, read and write counted."""
    sustained_tflops: dict[str, float] = {}
    """Precision -> TFLOP/s (TOP/s) of a large matrix product that runs for a while."""
    took_s: float = 0.0

    @property
    def key(self) -> str:
        """Names the machine and its GPU, in a file's name: by its hardware, never by the host's name."""
        return slug(self.processor, self.processors, self.gpu or self.device_name)


def slug(processor: str, processors: int, gpu: str) -> str:
    text = f"{processor} x{processors} {gpu or 'cpu'}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def encode(calibration: Calibration) -> bytes:
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"


def decode(data: bytes, path: object) -> Calibration:
    """Raises TracekitError for a file that holds no calibration, or one of another version."""
    try:
        found = msgspec.json.decode(data, type=Calibration)
    except msgspec.DecodeError as error:
        raise TracekitError(
            f"{path} is no calibration.", f"{error}.", "Measure again with: tracekit calibrate"
        ) from error
    if found.version != VERSION:
        raise TracekitError(
            f"{path} is of another version.", f"{found.version}, not {VERSION}.", "Measure again: tracekit calibrate"
        )
    return found
