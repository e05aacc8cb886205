"""Time of recurrent layers: one GEMM of all inputs, and a small GEMM and the gates for each step of the states.

cuDNN does not divide the GEMM of a step along its depth, which is longest in the backward pass. Its kernels that
keep the weights on the chip over all steps are not modelled.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Product, Recurrent
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.gemm import Machine
from tracekit.analyzers.kernel_time.memory_bound import memory_seconds
from tracekit.analyzers.kernel_time.products import product_seconds


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
