"""GPUs by name: what their data sheets promise (gpus.toml) and what they sustain (calibration.toml)."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from analyzers import gpu_features, gpu_names
from analyzers.errors import UnknownNameError

ALIASES = {"v100": "v100-sxm", "a100": "a100-80gb-sxm", "h100": "h100-sxm"}
"""The usual part of a family; an A100 without a size is the 80 GB one."""

_RUNS_AS = {
    "int4": "int8",
    "int8": "fp16",
    "fp8": "fp16",
    "bf16": "fp32",
    "fp16": "fp32",
    "tf32": "fp32",
}
_SUSTAINED_AS = {"int4": "int8", "int8": "fp8", "fp8": "fp16", "bf16": "fp16", "tf32": "fp16", "fp64": "fp32"}


@dataclass(frozen=True)
class Spread:
    """A typical value and the range that machines of a kind show."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class GPU:
    """One row of gpus.toml with its row of calibration.toml. Rates are dense, never sparse."""

    id: str
    name: str
    vendor: str
    """nvidia or amd."""
    architecture: str
    compute_capability: tuple[int, int]
    """(0, 0) for other vendors than NVIDIA."""
    sms: int
    clock_ghz: float
    memory_gb: float
    bandwidth_gbs: float
    l2_mb: float
    tdp_w: int
    pcie_gbs: float
    """The link to the host, one direction."""
    nvlink_gbs: float
    """All links, both directions; 0: none."""
    peaks_tflops: Mapping[str, float]
    """Precision -> TFLOP/s (TOP/s for integers); a precision that the GPU has no unit for is absent."""
    driver_names: tuple[str, ...]
    """Names that drivers report."""
    source: str
    sustained: Mapping[str, float]
    """Precision -> part of the peak that large matrix products reach."""
    copy_efficiency: float
    """Part of the bandwidth that large copies reach."""
    host_op_us: Spread
    """Host time of a kernel-launching op in eager PyTorch, on machines that such GPUs sit in."""
    launch_us: float
    """From a launch call to the kernel's start on an idle device."""
    basis: str
    """Source of the sustained numbers."""

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def bandwidth(self) -> float:
        """B/s of device memory."""
        return self.bandwidth_gbs * 1e9

    @property
    def memory_bytes(self) -> int:
        """Decimal gigabytes: a little less than the driver shows on HBM cards, about what ECC leaves on others."""
        return int(self.memory_gb * 1e9)

    @property
    def l2_bytes(self) -> int:
        return int(self.l2_mb * 2**20)

    @property
    def features(self) -> frozenset[str]:
        return gpu_features.features(self.vendor, self.architecture, self.compute_capability, self.sms)

    def supports(self, feature: str) -> bool:
        """Whether the GPU can use a feature of `gpu_features.FEATURES`; UnknownNameError for another name."""
        if feature not in gpu_features.FEATURES:
            raise UnknownNameError(
                f"GPU feature '{feature}' is not known.", hint=_nearest(feature, gpu_features.FEATURES)
            )
        return feature in self.features

    def runs_as(self, precision: str) -> str:
        """The precision whose units do the work: bf16 and tf32 without units run as fp32, fp8 and integers as the
        nearest wider type that there is a unit for."""
        while precision not in self.peaks_tflops:
            if precision not in _RUNS_AS:
                raise UnknownNameError(f"Precision '{precision}' is not known.", hint=_nearest(precision, _RUNS_AS))
            precision = _RUNS_AS[precision]
        return precision

    def peak_flops(self, precision: str) -> float:
        """Dense FLOP/s (integer op/s) of the units that a precision runs on."""
        return self.peaks_tflops[self.runs_as(precision)] * 1e12

    def sustained_flops(self, precision: str) -> float:
        """FLOP/s that a large matrix product reaches, power limit included."""
        name = self.runs_as(precision)
        while name not in self.sustained:
            name = _SUSTAINED_AS[name]
        return self.peak_flops(precision) * self.sustained[name]

    def ridge(self, precision: str) -> float:
        """FLOP/B where the compute roof meets the bandwidth roof."""
        return self.peak_flops(precision) / self.bandwidth


@cache
def all_gpus() -> tuple[GPU, ...]:
    """Every known GPU, in the order of gpus.toml."""
    calibration = _table("calibration.toml")
    return tuple(_gpu(gpu_id, row, calibration[gpu_id]) for gpu_id, row in _table("gpus.toml").items())


def find(name: str) -> GPU:
    """The GPU of an id, an alias (v100, a100, h100) or a driver's name; UnknownNameError with the nearest ids."""
    wanted = name.strip().lower()
    wanted = ALIASES.get(wanted, wanted)
    found = next((gpu for gpu in all_gpus() if gpu.id == wanted), None) or resolve(name)
    if found is None:
        known = [gpu.id for gpu in all_gpus()] + list(ALIASES)
        raise UnknownNameError(f"GPU '{name}' is not known.", hint=_nearest(wanted, known))
    return found


def resolve(device_name: str, sms: int = 0, memory_bytes: int = 0) -> GPU | None:
    """The GPU that a driver names so, or None.

    `sms` and `memory_bytes` as the driver reports them (0: unknown) choose between parts of one name, and tell a slice
    of a GPU (MIG, vGPU) from a whole one: a slice is None. A part sold with more memory than its row keeps what the
    driver reports.
    """
    matches = [gpu for gpu in all_gpus() if gpu_names.matches(device_name, gpu.id, gpu.driver_names)]
    whole = [gpu for gpu in matches if _is_whole(gpu, sms, memory_bytes)]
    if not whole:
        return None
    usual = ALIASES.values()
    best = min(whole, key=lambda gpu: (*_distance(gpu, sms, memory_bytes), gpu.id not in usual, "pcie" in gpu.id))
    if memory_bytes > 1.15 * best.memory_bytes:
        return replace(best, memory_gb=round(memory_bytes / 1e9, 1))
    return best


def _is_whole(gpu: GPU, sms: int, memory_bytes: int) -> bool:
    return (not sms or sms > 0.9 * gpu.sms) and (not memory_bytes or memory_bytes > 0.85 * gpu.memory_bytes)


def _distance(gpu: GPU, sms: int, memory_bytes: int) -> tuple[float, float]:
    return abs(sms - gpu.sms) if sms else 0, abs(memory_bytes - gpu.memory_bytes) if memory_bytes else 0


def _nearest(name: str, known: Mapping[str, Any] | frozenset[str] | list[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.4)
    return f"Nearest: {', '.join(close)}." if close else f"Known: {', '.join(sorted(known))}."


def _table(file: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


def _gpu(gpu_id: str, row: dict[str, Any], calibration: dict[str, Any]) -> GPU:
    major, minor = row.pop("compute_capability")
    names = tuple(row.pop("driver_names"))
    host = Spread(*calibration.pop("host_op_us"))
    return GPU(id=gpu_id, compute_capability=(major, minor), driver_names=names, host_op_us=host, **row, **calibration)
