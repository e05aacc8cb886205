"""Modelled time of an op's kernels on a GPU: one model per family, with the roofline as a lower bound."""

import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Attention, ConvolutionGradients, Norm, Precision, Product, Recurrent
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.attention import attention_seconds, backend
from tracekit.analyzers.kernel_time.convolution import convolution_seconds, gradients_seconds
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.group_norm import group_norm_seconds
from tracekit.analyzers.kernel_time.likeness import linked
from tracekit.analyzers.kernel_time.memory_bound import memory_seconds
from tracekit.analyzers.kernel_time.products import product_seconds
from tracekit.analyzers.kernel_time.recurrent import recurrent_seconds

CONSTANTS = Path(__file__).parent / "constants.toml"


@lru_cache(maxsize=1 << 16)
def estimate_ns(cost: Cost, gpu: GPU) -> float:
    """Return the nanoseconds on the device without launch gaps; never below the roofline."""
    return max(model_seconds(cost, gpu), roofline_seconds(cost, gpu)) * 1e9


def roofline_seconds(cost: Cost, gpu: GPU) -> float:
    """Return the lower bound of any kernel: FLOPs at the peak rate, and bytes at the bandwidth if they exceed the
    L2."""
    compute = cost.flops / gpu.peak_flops(cost.precision)
    return max(compute, cost.bytes / gpu.bandwidth if cost.bytes > gpu.l2_bytes else 0.0)


@cache
def constants() -> dict[str, Any]:
    """Return constants.toml. A section has the numbers of the one that it is like, too."""
    table = tomllib.loads(CONSTANTS.read_text(encoding="utf-8"))
    return {name: linked(sections) for name, sections in table.items()}


def machine(gpu: GPU, precision: Precision) -> Machine:
    return Machine(
        flops=gpu.sustained_flops(precision),
        bandwidth=gpu.bandwidth * gpu.copy_efficiency,
        sms=gpu.sms,
        clock_hz=gpu.clock_ghz * 1e9,
        operand_bytes=ELEMENT_BYTES[precision],
    )


def model_seconds(cost: Cost, gpu: GPU) -> float:
    """Return the seconds by the model of the cost's family, without the roofline as a lower bound."""
    if cost.flops and isinstance(cost.work, Attention):
        fit = constants()["attention"][backend(cost, gpu)]
        return attention_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), fit)
    if cost.family == "convolution" and isinstance(cost.work, Product):
        return convolution_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if isinstance(cost.work, ConvolutionGradients):
        return gradients_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if cost.flops and isinstance(cost.work, Product):
        return product_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants()["gemm"])
    if isinstance(cost.work, Recurrent):
        return recurrent_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if isinstance(cost.work, Norm) and cost.work.grouped:
        return group_norm_seconds(cost, gpu, machine(gpu, cost.precision), constants()["memory"])
    return max(
        memory_seconds(cost, gpu, machine(gpu, cost.precision), constants()["memory"]),
        cost.flops / gpu.sustained_flops(cost.precision),
    )
