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
    there = moved(base, gpu)
    kernel = there.ops.kernel_ns

    def latency(error: float, host_factor: float) -> float:
        return there.simulate(there.ops.assign(kernel_ns=kernel * error), host_factor) / 1e3

    hosts, expected = host_range(base.gpu, gpu), latency(1.0, 1.0)
    return Projection(
        gpu=gpu,
        latency_us=Interval(latency(KERNEL_ERROR.low, hosts.low), expected, latency(KERNEL_ERROR.high, hosts.high)),
        busy_us=Interval(*(kernel.sum() / 1e3 * error for error in (KERNEL_ERROR.low, 1.0, KERNEL_ERROR.high))),
        reason=f"Kernel times measured on {base.gpu.name}, scaled by the kernel model's ratio; host as measured here.",
    )


def moved(base: Baseline, gpu: GPU) -> Baseline:
    """The baseline on `gpu`, with the host of here."""
    ops = base.ops.assign(kernel_ns=_kernel_ns(base, gpu))
    source = replace(base.source, gpu=gpu)
    return replace(base, gpu=gpu, ops=ops, source=source, launch_latency_ns=gpu.launch_us * 1e3)


def host_range(here: GPU, there: GPU) -> Interval:
    """Host time on machines that one GPU sits in, over that on machines that the other does; expected the same."""
    ends = (there.host_op_us.low / here.host_op_us.expected, there.host_op_us.high / here.host_op_us.expected, 1.0)
    return Interval(min(ends), 1.0, max(ends))


def _kernel_ns(base: Baseline, gpu: GPU) -> "pd.Series[float]":
    copies = (base.ops.category == "memcpy") & base.ops.cost.isna()
    ratios = pd.Series([_ratio(cost, base.gpu, gpu) for cost in base.ops.cost], index=base.ops.index)
    return base.ops.kernel_ns * ratios.mask(copies, base.gpu.pcie_gbs / gpu.pcie_gbs)


def _ratio(cost: Cost | None, here: GPU, there: GPU) -> float:
    """Work of unknown cost is taken to be bound by memory."""
    if cost is None:
        return here.bandwidth / there.bandwidth
    return estimate_ns(cost, there) / estimate_ns(cost, here)
