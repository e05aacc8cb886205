"""A measured step on another GPU: every kernel's time scaled by modelled-there over modelled-here."""

from dataclasses import replace

import pandas as pd

from analyzers.costs.call import Cost
from analyzers.hardware import GPU
from analyzers.interval import Interval
from analyzers.kernel_time import estimate_ns
from analyzers.prediction.baseline import Baseline
from analyzers.results import Projection

KERNEL_ERROR = Interval(0.85, 1.0, 1.2)
"""Modelled over real kernel time on a GPU that was held out of the fit."""


def project(base: Baseline, gpu: GPU) -> Projection:
    """The baseline's step on `gpu`, in microseconds. The host is taken as it is here; its range is that of machines
    that such GPUs sit in, relative to those that the GPU here sits in."""
    kernel = _kernel_ns(base, gpu)
    there = replace(base, gpu=gpu, ops=base.ops.assign(kernel_ns=kernel), launch_latency_ns=gpu.launch_us * 1e3)

    def latency(error: float, host_factor: float) -> float:
        return there.simulate(there.ops.assign(kernel_ns=kernel * error), host_factor) / 1e3

    here_us = base.gpu.host_op_us.expected
    hosts = (gpu.host_op_us.low / here_us, gpu.host_op_us.high / here_us, 1.0)
    expected = latency(1.0, 1.0)
    return Projection(
        gpu=gpu,
        latency_us=Interval(latency(KERNEL_ERROR.low, min(hosts)), expected, latency(KERNEL_ERROR.high, max(hosts))),
        busy_us=Interval(*(kernel.sum() / 1e3 * error for error in (KERNEL_ERROR.low, 1.0, KERNEL_ERROR.high))),
        reason=f"Kernel times measured on {base.gpu.name}, scaled by the kernel model's ratio; host as measured here.",
    )


def _kernel_ns(base: Baseline, gpu: GPU) -> "pd.Series[float]":
    copies = (base.ops.category == "memcpy") & base.ops.cost.isna()
    ratios = pd.Series([_ratio(cost, base.gpu, gpu) for cost in base.ops.cost], index=base.ops.index)
    return base.ops.kernel_ns * ratios.mask(copies, base.gpu.pcie_gbs / gpu.pcie_gbs)


def _ratio(cost: Cost | None, here: GPU, there: GPU) -> float:
    """Work of unknown cost is taken to be bound by memory."""
    if cost is None:
        return here.bandwidth / there.bandwidth
    return estimate_ns(cost, there) / estimate_ns(cost, here)
