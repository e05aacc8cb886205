"""Time of a convolution's forward pass as an implicit GEMM, as cuDNN computes it."""

from collections.abc import Mapping
from typing import Any

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.gemm import Machine

_ALIGNMENT = 16
"""Alignment in bytes of the channels of a position that vector loads into tensor units need."""
_SIMT = ("fp64", "fp32")


def convolution_seconds(cost: Cost, shape: Product, gpu: GPU, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Seconds of all kernels of a convolution; `fit` is the section [convolution] of constants.toml."""
    stream = cost.bytes / machine.bandwidth
    tensor = gpu.runs_as(cost.precision) not in _SIMT
    if tensor and cost.run * machine.operand_bytes % _ALIGNMENT:
        compute = cost.flops * machine.operand_bytes / (fit["unaligned"] * machine.sms * machine.clock_hz)
        depth = shape.k * fit["element_ns"] * 1e-9
        return float(fit["start_us"] * 1e-6 + max(stream, compute, depth))
    compute = cost.flops / (machine.flops * fit["efficiency"])
    longest = max(stream, compute, _depth_seconds(shape, machine, fit))
    layouts = fit["layout_us"] * 1e-6 + 2 * stream if tensor and cost.access == "transposed" else 0.0
    return float(fit["start_us"] * 1e-6 + longest + layouts)


def _depth_seconds(shape: Product, machine: Machine, fit: Mapping[str, Any]) -> float:
    """Seconds that one CTA needs for the whole depth (k), or for a part of it plus the reduction after split-K."""
    whole = shape.k * machine.operand_bytes * fit["byte_ns"] * 1e-9
    return min(whole / parts + (parts - 1) * fit["part_us"] * 1e-6 for parts in (1, 2, 4, 8))
