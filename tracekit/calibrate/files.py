"""Calibrations: measurements of a machine that `tracekit calibrate` stores for later predictions."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from tracekit.analyzers.core import Interval, TracekitError
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, LAUNCH_CALL, Cost, Precision, Product, estimate_ns
from tracekit.analyzers.predict import HostCosts, assumed, calibrated
from tracekit.calibrate.device_probes import COPY_BYTES, SIDE
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


_PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_CORRECTIONS = Interval(0.5, 1.0, 1.5)
"""Limits of a correction. A rate outside them shows that another program used the GPU, not how fast the GPU is."""


def host_costs(calibration: Calibration | None, gpu: GPU) -> HostCosts:
    """Return the host time of ops: calibrated if the calibration is of this GPU, else assumed."""
    if calibration is None or calibration.gpu != gpu.id:
        return assumed(gpu)
    probes = {name: Interval(*times) for name, times in calibration.host_us.items()}
    return calibrated(probes, calibration.measured_at[:10]) or assumed(gpu)


def calibrated_gpu(gpu: GPU) -> tuple[GPU, HostCosts]:
    """Return the GPU and the host time of ops, as far as this machine was calibrated for the GPU."""
    calibration = load(gpu.id)
    return as_calibrated(gpu, calibration), host_costs(calibration, gpu)


def as_calibrated(gpu: GPU, calibration: Calibration | None) -> GPU:
    """Return the GPU with the rates that were measured on this machine.

    The constants of the kernel model were fitted with the catalogue's rates. These rates are therefore multiplied by
    the ratio of measured to modelled throughput of the same GEMMs and copies.
    """
    if calibration is None or calibration.gpu != gpu.id:
        return gpu
    rates = calibration.sustained_tflops
    sustained: dict[str, float] = {
        precision: gpu.sustained_flops(precision) / gpu.peak_flops(precision) * _correction(gpu, precision, rates)
        for precision in _PRECISIONS
        if precision in gpu.peaks_tflops
    }
    return replace(
        gpu,
        sustained={**gpu.sustained, **sustained},
        copy_efficiency=gpu.copy_efficiency * _copy_correction(gpu, calibration.copies_gb_per_s),
        launch_us=_launch_us(calibration, gpu),
    )


def _launch_us(calibration: Calibration, gpu: GPU) -> float:
    """Return the launch latency in microseconds, with the call itself, which is assumed to be LAUNCH_CALL of it."""
    return calibration.launch_us / (1 - LAUNCH_CALL) if calibration.launch_us else gpu.launch_us


def _correction(gpu: GPU, precision: Precision, rates: Mapping[str, float]) -> float:
    if precision not in rates:
        return 1.0
    return _limited(rates[precision] * 1e12 * estimate_ns(_product(precision), gpu) / 1e9 / (2 * SIDE**3))


def _copy_correction(gpu: GPU, rates: Mapping[str, float]) -> float:
    if "d2d" not in rates:
        return 1.0
    return _limited(rates["d2d"] * estimate_ns(_copy(), gpu) / (2 * COPY_BYTES))


def _limited(ratio: float) -> float:
    return min(max(ratio, _CORRECTIONS.low), _CORRECTIONS.high)


def _product(precision: Precision) -> Cost:
    matrix = round(SIDE * SIDE * ELEMENT_BYTES[precision])
    return Cost(2 * SIDE**3, 2 * matrix, matrix, "gemm", precision, matrix, Product(1, SIDE, SIDE, SIDE))


def _copy() -> Cost:
    return Cost(0, COPY_BYTES, COPY_BYTES, "copy", "fp32")
