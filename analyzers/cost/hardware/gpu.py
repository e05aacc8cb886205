"""A GPU: its data sheet (gpus.toml), and its sustained rates (calibration.toml, or estimates)."""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from tracekit.analyzers.core import Interval, UnknownNameError, facts, version

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
_RUNS_AS = {
    "fp4": "fp8",
    "int4": "int8",
    "int8": "fp16",
    "fp8": "fp16",
    "bf16": "fp32",
    "fp16": "fp32",
    "tf32": "fp32",
}
_SUSTAINED_AS = {
    "fp4": "fp8",
    "int4": "int8",
    "int8": "fp8",
    "fp8": "fp16",
    "bf16": "fp16",
    "tf32": "fp16",
    "fp16": "fp32",
    "fp64": "fp32",
}

ESTIMATED = "estimated from its data sheet"
LAUNCH_CALL = 0.5
"""Fraction of the time from a launch call to the kernel's start that the call itself takes."""


class GPU(msgspec.Struct, frozen=True):
    """The data sheet and sustained rates of a GPU. Rates are dense, never sparse.

    Units are in the names: gbs is GB/s, mb of `l2_mb` is MiB, other sizes and rates are decimal.
    """

    id: str
    name: str
    vendor: str
    """nvidia or amd."""
    architecture: str
    compute_capability: tuple[int, int]
    """(0, 0) for vendors other than NVIDIA."""
    sms: int
    clock_ghz: float
    memory_gb: float
    bandwidth_gbs: float
    l2_mb: float
    tdp_w: int
    pcie_gbs: float
    """Bandwidth of the link to the host in one direction."""
    nvlink_gbs: float
    """Bandwidth of all links in both directions; 0 without NVLink."""
    peaks_tflops: Mapping[str, float]
    """Precision -> TFLOP/s (TOP/s for integers); a precision that the GPU has no unit for is absent."""
    driver_names: tuple[str, ...]
    """Names that drivers report."""
    source: str
    sustained: Mapping[str, float]
    """Precision -> fraction of the peak that large GEMMs reach."""
    copy_efficiency: float
    """Fraction of the bandwidth that large copies reach."""
    host_op_us: Interval
    """Host time of an average kernel-launching op of GPT-2 in eager PyTorch, on typical machines with such GPUs."""
    launch_us: float
    """Time from a launch call to the kernel's start on an idle device."""
    kernel_start_us: float
    """Time of a memory-bound kernel in addition to the start in the kernel time model, which is that of H200s, A100s
    and T4s."""
    basis: str
    """Source of the sustained numbers."""
    fitted: tuple[str, ...] = ()
    """Precisions whose sustained rate was fitted on measured GEMMs of this GPU."""

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def is_estimated(self) -> bool:
        """Whether its sustained rates were not measured, but estimated from the data sheet."""
        return self.basis.startswith(ESTIMATED)

    @property
    def bandwidth(self) -> float:
        """Bandwidth of device memory in B/s."""
        return self.bandwidth_gbs * 1e9

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes, from decimal gigabytes.

        This is slightly less than the driver reports for HBM, and about the memory that remains with ECC on other GPUs.
        """
        return int(self.memory_gb * 1e9)

    @property
    def l2_bytes(self) -> int:
        return int(self.l2_mb * 2**20)

    @property
    def launch_call_us(self) -> float:
        """Host time of a launch call."""
        return self.launch_us * LAUNCH_CALL

    @property
    def launch_latency_us(self) -> float:
        """Time from the call's return to the kernel's start on an idle device."""
        return self.launch_us - self.launch_call_us

    @property
    def features(self) -> frozenset[str]:
        return features(self.vendor, self.architecture, self.compute_capability, self.sms)

    def supports(self, feature: str) -> bool:
        """Return whether the GPU has a feature of `FEATURES`. Raises UnknownNameError for another name."""
        if feature not in FEATURES:
            raise UnknownNameError(f"GPU feature '{feature}' is not known.", hint=nearest(feature, FEATURES))
        return feature in self.features

    def runs_as(self, precision: str) -> str:
        """Return the precision whose units execute `precision`.

        Without units of their own, bf16 and tf32 run as fp32, and fp8 and integers as the nearest wider type with
        units. Raises UnknownNameError for an unknown precision.
        """
        while precision not in self.peaks_tflops:
            if precision not in _RUNS_AS:
                raise UnknownNameError(f"Precision '{precision}' is not known.", hint=nearest(precision, _RUNS_AS))
            precision = _RUNS_AS[precision]
        return precision

    def peak_flops(self, precision: str) -> float:
        """Return the dense peak FLOP/s (op/s for integers) of the units that execute a precision."""
        return self.peaks_tflops[self.runs_as(precision)] * 1e12

    def sustained_flops(self, precision: str) -> float:
        """Return the FLOP/s that a large GEMM reaches under the power limit."""
        name = self.runs_as(precision)
        while name not in self.sustained:
            name = _SUSTAINED_AS[name]
        return self.peak_flops(precision) * self.sustained[name]

    def ridge(self, precision: str) -> float:
        """FLOP/B where the compute roof meets the bandwidth roof."""
        return self.peak_flops(precision) / self.bandwidth


def nearest(name: str, known: Mapping[str, Any] | frozenset[str] | list[str]) -> str:
    """Return a hint that gives the known names most similar to this one."""
    close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.4)
    return f"Nearest: {', '.join(close)}." if close else f"Known: {', '.join(sorted(known))}."


_NVIDIA_FROM = {name: version(first) for name, first in facts(__file__)["features"].items()}
"""Feature -> first compute capability that has it."""

_CDNA3 = frozenset(_NVIDIA_FROM) - {"llm-int8"} | {"max-autotune-gemm"}
_AMD = {"cdna2": _CDNA3 - {"tf32", "fp8", "float8-dynamic"}, "cdna3": _CDNA3, "cdna4": _CDNA3 - {"tf32"}}
_DATA_CENTRE_BLACKWELL = ((10, 0), (10, 3))
_AUTOTUNE_SMS = 68

FEATURES = frozenset(_NVIDIA_FROM) | {"int4-tensor", "cudnn-attention", "flash-attention-3", "max-autotune-gemm"}


def features(vendor: str, architecture: str, capability: tuple[int, int], sms: int) -> frozenset[str]:
    """Return the subset of FEATURES that a GPU has.

    Sources: PyTorch's sdp_utils.cpp (attention backends; cuDNN's where it is preferred), Inductor's is_big_gpu
    (max-autotune-gemm), torchao and bitsandbytes (float8-dynamic, llm-int8), CUDA's table of capabilities; AMD's CDNA
    instruction set references (xf32 only on CDNA3, fp8 since CDNA3).
    """
    if vendor == "amd":
        return _AMD.get(architecture, frozenset())
    having = {name for name, first in _NVIDIA_FROM.items() if capability >= first}
    if capability == (10, 3):
        having.discard("int8-tensor")  # Blackwell Ultra kept a fraction of the integer units.
    if (7, 5) <= capability < (9, 0):
        having.add("int4-tensor")
    if capability == (9, 0) or capability in _DATA_CENTRE_BLACKWELL:
        having.add("cudnn-attention")
    if capability == (9, 0):
        having.add("flash-attention-3")
    if sms >= _AUTOTUNE_SMS:
        having.add("max-autotune-gemm")
    return frozenset(having)
