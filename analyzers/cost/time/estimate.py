"""Modelled time of an op's kernels on a named GPU."""

import tomllib
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Attention, ConvolutionGradients, Norm, Precision, Product, Recurrent
from tracekit.analyzers.cost.time.attention import attention_seconds, backend
from tracekit.analyzers.cost.time.convolution import convolution_seconds, gradients_seconds
from tracekit.analyzers.cost.time.gemm import Machine, product_seconds
from tracekit.analyzers.cost.time.memory_bound import memory_seconds

__all__ = ["estimate_ns"]


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


_EXPECTED = 1
"""Position in a list of low, expected and high."""


def linked(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections, each as a ChainMap whose first map holds its own values, with intervals as expected."""
    own = {name: _expected(values) if isinstance(values, dict) else values for name, values in sections.items()}
    return {name: _chain(name, own) if isinstance(values, dict) else _middle(values) for name, values in own.items()}


def _expected(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _middle(value) for name, value in section.items()}


def _middle(value: Any) -> Any:
    return value[_EXPECTED] if isinstance(value, list) else value


def _chain(name: str, own: Mapping[str, dict[str, Any]]) -> ChainMap[str, Any]:
    maps = [own[name]]
    while "like" in maps[-1]:
        maps.append(own[maps[-1]["like"]])
    return ChainMap(*maps)


def group_norm_seconds(cost: Cost, gpu: GPU, machine: Machine, families: Mapping[str, Any]) -> float:
    """Return the seconds of all kernels. The gradients have sums of each channel instead of statistics of each
    group."""
    statistics = replace(cost, flops=0, write_bytes=0, family="reduction", access="moments", work=None)
    applied = replace(cost, flops=0, family="pointwise", access="indexed", row=0, work=None)
    factors = (families["rows"]["start_us"] + gpu.kernel_start_us) * 1e-6
    return factors + sum(memory_seconds(each, gpu, machine, families) for each in (statistics, applied))


def recurrent_seconds(cost: Cost, work: Recurrent, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds of all layers in sequence. The backward pass computes two GEMMs for each."""

    def product(m: int, n: int, k: int) -> float:
        shape, size = Product(1, m, n, k), ELEMENT_BYTES[cost.precision]
        read, written = round((m * k + k * n) * size), round(m * n * size)
        of = replace(cost, flops=2 * m * n * k, read_bytes=read, write_bytes=written, weight_bytes=0, family="gemm")
        return product_seconds(replace(of, work=shape), shape, gpu, machine, fits["gemm"])

    def step(n: int, k: int) -> float:
        depth = k * ELEMENT_BYTES[cost.precision] * fits["recurrent"]["byte_ns"] * 1e-9
        return max(product(batch, n, k), fits["gemm"]["tensor"]["start_us"] * 1e-6 + depth if batch > 1 else 0.0)

    batch, gates = ceil(work.rows / work.steps), work.gates * work.hidden
    pointwise = _gates_seconds(cost, work, batch, gpu, machine, fits)
    steps = work.layers * work.steps
    if work.backward:
        inputs = sum(product(work.rows, width, gates) for width in work.widths)
        weights = sum(product(gates, width + work.output, work.rows) for width in work.widths)
        return work.directions * (inputs + weights + steps * (step(work.output, gates) + pointwise))
    inputs = sum(product(work.rows, gates, width) for width in work.widths)
    return work.directions * (inputs + steps * (step(gates, work.output) + pointwise))


def _gates_seconds(
    cost: Cost, work: Recurrent, batch: int, gpu: GPU, machine: Machine, fits: Mapping[str, Any]
) -> float:
    moved = round(batch * work.hidden * ELEMENT_BYTES[cost.precision])
    gates = Cost(0, (2 * work.gates + 1) * moved, 2 * moved, "pointwise", cost.precision)
    return memory_seconds(gates, gpu, machine, fits["memory"])
