"""Estimates unmeasured properties of a GPU from its data sheet and from measured GPUs.

Under load, the power limit sets the clock. The energy of a FLOP grows with the voltage, which is about proportional to
the clock, so the power of the units grows with the square of the sustained rate:

limit - idle power = peak x energy of a FLOP x sustained^2

The energy of a FLOP at the rated clock comes from measured GPUs of the same compute capability, or else with the same
kind of units: 16 to 25 pJ for fp32 units, from V100 to H200; 2 pJ for tensor cores that read registers (A100, L40S);
1 pJ for those that read shared memory (Hopper and data-center Blackwell). An estimate is never above the best measured
GPU.
"""

from collections.abc import Collection, Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from tracekit.analyzers.core import Interval, facts, version
from tracekit.analyzers.cost.hardware.gpu import ESTIMATED, GPU

_IDLE_W = 20
"""Power of the board, the memory and leakage, in watts: the idle power of a T4 or an L4 (of 70 W)."""
_SHARED_MEMORY_FED = ((9, 0), (10, 0), (10, 3))
"""Compute capabilities whose tensor cores read operands from shared memory instead of registers."""
_ESTIMATED = ("fp32", "fp16", "fp8")
"""Precisions that are estimated; the others use one of these estimates."""
_WORKSTATION = frozenset({"rtx", "gtx", "titan", "geforce", "quadro"})
"""Words in names of GPUs for desktop machines, whose CPU cores are faster than those of servers."""

Measured = Collection[tuple[str, str]]
"""Pairs of GPU id and precision whose sustained rate was fitted on measured GEMMs of that GPU."""


def completed(gpu: GPU, measured: Sequence[GPU]) -> GPU:
    """Return the GPU with estimates for its unknown fields of calibration.toml.

    `measured` are the GPUs with a section there.
    """
    fitted = {(one.id, precision) for one in measured for precision in one.fitted}
    rated = estimated_by_data_sheet(gpu, measured, fitted)
    estimates = f"rates from its power limit, copies, launches and host from similar GPUs; {gpu.basis}".rstrip("; ")
    return replace(
        rated,
        sustained={**rated.sustained, **gpu.sustained},
        copy_efficiency=gpu.copy_efficiency or rated.copy_efficiency,
        host_op_us=gpu.host_op_us if gpu.host_op_us.high else _host(gpu, measured),
        launch_us=gpu.launch_us or fmean(one.launch_us for one in measured if one.launch_us),
        basis=f"{gpu.basis}; the rest from similar GPUs" if gpu.fitted else f"{ESTIMATED}: {estimates}",
    )


def estimated_by_data_sheet(gpu: GPU, others: Sequence[GPU], measured: Measured) -> GPU:
    """Return the GPU with estimated GEMM rates, and the copy efficiency of the GPU with the nearest bandwidth."""
    rates: dict[str, float] = {}
    for precision in _ESTIMATED:
        if precision not in gpu.peaks_tflops:
            continue
        known = [one for one in others if precision in one.sustained and one.id != gpu.id]
        alike = [one for one in known if (one.id, precision) in measured and _same_units(gpu, one, precision)]
        alike = [one for one in known if one.compute_capability == gpu.compute_capability != (0, 0)] or alike
        if alike and not _has_fp16_on_fp32_units(gpu, precision):
            rated = [one.sustained[precision] for one in known if one in alike or (one.id, precision) in measured]
            rates[precision] = min(max(rated), _sustained(gpu, alike, precision))
        elif precision == "fp16":
            rates[precision] = rates["fp32"]
    copying = [one for one in others if one.copy_efficiency]
    of_vendor = [one for one in copying if one.vendor == gpu.vendor] or copying
    nearest = min(of_vendor, key=lambda one: abs(log(one.bandwidth_gbs / gpu.bandwidth_gbs)))
    return replace(gpu, sustained=rates, copy_efficiency=nearest.copy_efficiency)


def _has_fp16_on_fp32_units(gpu: GPU, precision: str) -> bool:
    """Return whether the fp32 units compute fp16, two values at a time (Pascal)."""
    return precision == "fp16" and gpu.vendor == "nvidia" and not gpu.supports("fp16-tensor")


def _same_units(gpu: GPU, other: GPU, precision: str) -> bool:
    fed = [one.compute_capability in _SHARED_MEMORY_FED for one in (gpu, other)]
    return precision == "fp32" or fed[0] == fed[1]


def _sustained(gpu: GPU, alike: Sequence[GPU], precision: str) -> float:
    energy = exp(fmean(log(_watts_per_tflops(one, precision) / one.sustained[precision] ** 2) for one in alike))
    return float((_watts_per_tflops(gpu, precision) / energy) ** 0.5)


def _watts_per_tflops(gpu: GPU, precision: str) -> float:
    return max(gpu.tdp_w - _IDLE_W, gpu.tdp_w / 2) / gpu.peaks_tflops[precision]


def _host(gpu: GPU, measured: Sequence[GPU]) -> Interval:
    """Return the host time of an op with the known GPUs of the same class (desktop or server) and the nearest age."""
    hosts = [one for one in measured if one.host_op_us.high]
    same_class = [one for one in hosts if _is_workstation(one) == _is_workstation(gpu)]
    least = min(_years_apart(gpu, one) for one in same_class)
    near = [one.host_op_us for one in same_class if _years_apart(gpu, one) == least]
    low, high = min(one.low for one in near), max(one.high for one in near)
    expected = exp(fmean(log(one.expected) for one in near))
    return Interval(low, min(max(low, expected), high), high)


def _years_apart(gpu: GPU, other: GPU) -> float:
    """Return how far apart the architectures are, by compute capability, which grows by about one in two years. It is
    0 if the vendors differ."""
    if gpu.vendor != other.vendor:
        return 0.0
    one, two = (major + minor / 10 for major, minor in (gpu.compute_capability, other.compute_capability))
    return abs(one - two)


def _is_workstation(gpu: GPU) -> bool:
    return not _WORKSTATION.isdisjoint(gpu.name.lower().split())


_UNKNOWN: dict[str, Any] = {
    "sustained": {},
    "copy_efficiency": 0.0,
    "host_op_us": (0.0, 0.0, 0.0),
    "launch_us": 0.0,
    "kernel_start_us": 0.0,
    "basis": "",
}


def gpu_of_row(gpu_id: str, row: Mapping[str, Any], calibration: Mapping[str, Any]) -> GPU:
    """Return the GPU of a complete row. Values that its calibration lacks are 0 until they are estimated."""
    values = {**row, **_UNKNOWN, **calibration}
    values["compute_capability"] = tuple(values["compute_capability"])
    values["host_op_us"] = Interval(*values["host_op_us"])
    values |= {name: tuple(values.get(name, ())) for name in ("driver_names", "fitted")}
    return GPU(id=gpu_id, **values)


def row_of_gpu(gpu: GPU) -> dict[str, Any]:
    """Return every field except the id, as in a row."""
    row = {name: value for name, value in structs.asdict(gpu).items() if name not in ("id", "fitted")}
    host = gpu.host_op_us
    lists = {"compute_capability": list(gpu.compute_capability), "driver_names": list(gpu.driver_names)}
    return {
        **row,
        **lists,
        "host_op_us": [host.low, host.expected, host.high],
        "peaks_tflops": dict(gpu.peaks_tflops),
        "sustained": dict(gpu.sustained),
    }


_KB = 1024
_REGISTERS_OF_A_WARP = 256
"""Registers are allocated to a warp in multiples of this."""


class SMLimits(msgspec.Struct, frozen=True):
    """The limits of one multiprocessor (one compute unit of AMD)."""

    warps: int
    blocks: int
    registers: int
    """Registers of 32 bits."""
    shared_bytes: int
    """Shared memory of the multiprocessor."""
    shared_block_bytes: int
    """Shared memory that one block may use."""
    reserved_bytes: int
    """Shared memory that the system reserves for each block."""
    threads_of_a_warp: int = 32
    registers_of_a_thread: int = 255
    schedulers: int = 4
    """Schedulers of warps (SIMD units of AMD): each issues for its own warps."""

    def resident_blocks(self, warps: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of `warps` warps, `registers` per thread and `shared_bytes` fit; 0 if none does."""
        if shared_bytes > self.shared_block_bytes or registers > self.registers_of_a_thread:
            return 0
        warp_registers = -(-registers * self.threads_of_a_warp // _REGISTERS_OF_A_WARP) * _REGISTERS_OF_A_WARP
        by_shared = self.shared_bytes // (shared_bytes + self.reserved_bytes) if shared_bytes else self.blocks
        return min(self.blocks, self.warps // warps, self.registers // (warp_registers * warps), by_shared)

    def occupancy(self, warps: int, registers: int, shared_bytes: int) -> float:
        """Return the number of resident warps divided by the maximum, 0 to 1."""
        return self.resident_blocks(warps, registers, shared_bytes) * warps / self.warps


_NVIDIA = {version(first): SMLimits(**limits) for first, limits in facts(__file__)["limits"].items()}
_CDNA3 = SMLimits(32, 16, 131072, 64 * _KB, 64 * _KB, 0, threads_of_a_warp=64, registers_of_a_thread=512)


def sm_limits(gpu: GPU) -> SMLimits:
    """Return the limits by compute capability. An unlisted one has those of the nearest lower one.

    Sources: CUDA programming guide, compute capabilities, technical specifications (9.0 agrees with what Nsight
    Compute reports on an H200); AMD Instinct MI300 instruction set architecture reference.
    """
    if gpu.vendor != "nvidia":
        return _CDNA3
    before = [capability for capability in _NVIDIA if capability <= gpu.compute_capability]
    return _NVIDIA[max(before, default=min(_NVIDIA))]
