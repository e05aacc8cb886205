"""Estimates the sustained rates of a GPU from its data sheet and from measured GPUs.

Under load, the power limit sets the clock. The energy of a FLOP grows with the voltage, which is about proportional to
the clock, so the power of the units grows with the square of the sustained rate:

limit - idle power = peak x energy of a FLOP x sustained^2

The energy of a FLOP at the rated clock comes from measured GPUs with the same kind of units: 16 to 25 pJ for fp32
units, from V100 to H200; 2 pJ for tensor cores that read registers (A100, L40S); 1 pJ for those that read shared memory
(Hopper and data-center Blackwell). An estimate is never above the best measured GPU.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean

from tracekit.analyzers.hardware.gpu import ESTIMATED, GPU
from tracekit.analyzers.interval import Interval

_BASIS = f"{ESTIMATED}: rates from its power limit, copies, launches and host from similar GPUs"

_IDLE_W = 20
"""Power of the board, the memory and leakage, in watts: what a T4 or an L4 draws of its 70 W while its units wait."""
_SHARED_MEMORY_FED = ((9, 0), (10, 0), (10, 3))
"""Compute capabilities whose tensor cores read operands from shared memory instead of registers."""
_ESTIMATED = ("fp32", "fp16", "fp8")
"""Precisions with an estimate of their own; the others use one of these."""
_WORKSTATION = frozenset({"rtx", "gtx", "titan", "geforce", "quadro"})
"""Words in names of GPUs for desktop machines, whose CPU cores are faster than those of servers."""

Measured = Collection[tuple[str, str]]
"""Pairs of GPU id and precision whose sustained rate was fitted on measured GEMMs of that GPU."""


def completed(gpu: GPU, measured: Sequence[GPU]) -> GPU:
    """Return the GPU with estimates for all fields of calibration.toml. `measured` are GPUs with a section there."""
    fitted = {(one.id, precision) for one in measured for precision in one.fitted}
    rated = by_data_sheet(gpu, measured, fitted)
    alike = _in_like_machines(gpu, measured)
    host = [one.host_op_us for one in alike]
    expected = exp(fmean(log(one.expected) for one in host))
    return replace(
        rated,
        host_op_us=Interval(min(one.low for one in host), expected, max(one.high for one in host)),
        launch_us=fmean(one.launch_us for one in alike),
        basis=_BASIS,
    )


def by_data_sheet(gpu: GPU, others: Sequence[GPU], measured: Measured) -> GPU:
    """Return the GPU with estimated GEMM rates, and the copy efficiency of the GPU with the nearest bandwidth."""
    rates: dict[str, float] = {}
    for precision in _ESTIMATED:
        if precision not in gpu.peaks_tflops:
            continue
        alike = [one for one in others if (one.id, precision) in measured and _same_units(gpu, one, precision)]
        if alike and not _on_fp32_units(gpu, precision):
            rates[precision] = _sustained(gpu, alike, precision)
        elif precision == "fp16":
            rates[precision] = rates["fp32"]
    nearest = min(others, key=lambda one: abs(log(one.bandwidth_gbs / gpu.bandwidth_gbs)))
    return replace(gpu, sustained=rates, copy_efficiency=nearest.copy_efficiency)


def _on_fp32_units(gpu: GPU, precision: str) -> bool:
    """Return whether the fp32 units compute fp16, two values at a time (Pascal)."""
    return precision == "fp16" and gpu.vendor == "nvidia" and not gpu.supports("fp16-tensor")


def _same_units(gpu: GPU, other: GPU, precision: str) -> bool:
    fed = [one.compute_capability in _SHARED_MEMORY_FED for one in (gpu, other)]
    return precision == "fp32" or fed[0] == fed[1]


def _sustained(gpu: GPU, alike: Sequence[GPU], precision: str) -> float:
    energy = exp(fmean(log(_watts_per_tflops(one, precision) / one.sustained[precision] ** 2) for one in alike))
    best = max(one.sustained[precision] for one in alike)
    return float(min(best, (_watts_per_tflops(gpu, precision) / energy) ** 0.5))


def _watts_per_tflops(gpu: GPU, precision: str) -> float:
    return max(gpu.tdp_w - _IDLE_W, gpu.tdp_w / 2) / gpu.peaks_tflops[precision]


def _in_like_machines(gpu: GPU, measured: Sequence[GPU]) -> Sequence[GPU]:
    """Return the GPUs of the same vendor and class (desktop or server), if possible of the same architecture."""
    same_vendor = [one for one in measured if one.vendor == gpu.vendor] or measured
    same_class = [one for one in same_vendor if _is_workstation(one) == _is_workstation(gpu)] or same_vendor
    return [one for one in same_class if one.architecture == gpu.architecture] or same_class


def _is_workstation(gpu: GPU) -> bool:
    return not _WORKSTATION.isdisjoint(gpu.name.lower().split())
