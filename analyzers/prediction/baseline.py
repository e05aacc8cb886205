"""The baseline that predictions start from: the op list of a step, calibrated to the step's real latency.

A profiler slows the host, so the host times in a trace are scaled until the simulated step takes as long as the step
took without a profiler.
"""

from dataclasses import dataclass, replace

import pandas as pd

from analyzers.hardware import GPU
from analyzers.interval import Interval
from analyzers.prediction.oplist import build
from analyzers.prediction.simulate import simulate
from analyzers.results import Analysis, Source
from analyzers.trace import Trace

LAUNCH_LATENCY_NS = 5_000.0
QUEUED_GAP_NS = 1_000.0
MOST_TO_LAUNCH_NS = 500_000.0
"""Host time before a launch beyond this is no launching: data loading, compiling, Python of the caller."""
PROFILED_HOST = Interval(0.4, 0.5, 1.0)
"""Host time without a profiler over host time under one; measured: 9.8 ms of 22 ms on GPT-2 prefill."""


@dataclass(frozen=True)
class Baseline:
    """An op list (OP_LIST) whose simulation reproduces the step's latency."""

    ops: pd.DataFrame
    gpu: GPU
    source: Source
    stated_ns: float
    """The step's latency as measured without a profiler, or as modelled; for an imported trace, as profiled."""
    launch_latency_ns: float
    gap_ns: float
    host_range: Interval
    """Factors on the host time that the evidence leaves open."""

    @property
    def latency_ns(self) -> float:
        """The simulated latency."""
        return self.simulate(self.ops)

    @property
    def busy_ns(self) -> float:
        return float(self.ops.kernel_ns.sum())

    @property
    def launching_ns(self) -> float:
        """Host time of a step that goes into launching."""
        return float(self.ops.host_ns.sum() - self.other_host_ns)

    @property
    def other_host_ns(self) -> float:
        """Host time of a step that no way of launching saves."""
        return float((self.ops.host_ns - MOST_TO_LAUNCH_NS).clip(lower=0).sum())

    def simulate(self, ops: pd.DataFrame, host_factor: float = 1.0) -> float:
        """Latency of a step of these ops, in nanoseconds."""
        kernel = ops.kernel_ns + (ops.launches - 1) * self.gap_ns
        timeline = simulate(
            ops.host_ns * host_factor,
            kernel,
            launch_latency_ns=self.launch_latency_ns,
            gap_ns=self.gap_ns,
            sync=ops.sync,
        )
        return float(timeline.latency_ns)


def baseline(trace: Trace, analysis: Analysis) -> Baseline | None:
    """The calibrated baseline of a trace; None without device work or without a known GPU."""
    ops = build(trace, analysis)
    if ops.empty or analysis.source.gpu is None:
        return None
    stated = analysis.latency.unprofiled.median_us if analysis.latency.unprofiled else analysis.latency.profiled_us
    raw = Baseline(
        ops=ops,
        gpu=analysis.source.gpu,
        source=analysis.source,
        stated_ns=stated * 1e3,
        launch_latency_ns=_launch_latency(analysis.work),
        gap_ns=_queued_gap(analysis.work),
        host_range=Interval(1.0, 1.0, 1.0),
    )
    return _CALIBRATE[analysis.source.kind](raw)


def _modelled(raw: Baseline) -> Baseline:
    host = raw.gpu.host_op_us
    return replace(raw, host_range=Interval(host.low / host.expected, 1.0, host.high / host.expected))


def _imported(raw: Baseline) -> Baseline:
    """Host time as without a profiler, and never more than fits the step: a launch that found the queue full waited."""
    host = PROFILED_HOST
    open_range = Interval(host.low / host.expected, 1.0, host.high / host.expected)
    return replace(_scaled(raw, min(host.expected, _largest_host_factor(raw))), host_range=open_range)


def _measured(raw: Baseline) -> Baseline:
    """Host time scaled to the unprofiled latency; kernel time too, if the kernels alone exceed it."""
    floor = raw.simulate(raw.ops, 0.0)
    if floor > raw.stated_ns:
        shrunk = raw.ops.assign(kernel_ns=raw.ops.kernel_ns * raw.stated_ns / floor)
        raw = replace(raw, ops=shrunk)
    most = _largest_host_factor(raw)
    expected = min(most, PROFILED_HOST.expected)
    open_range = Interval(1.0, 1.0, 1.0) if most == expected else Interval(0.7, 1.0, min(1.5, most / expected))
    return replace(_scaled(raw, expected), host_range=open_range)


_CALIBRATE = {"modelled": _modelled, "imported": _imported, "measured": _measured}


def _scaled(raw: Baseline, factor: float) -> Baseline:
    return replace(raw, ops=raw.ops.assign(host_ns=raw.ops.host_ns * factor))


def _largest_host_factor(raw: Baseline) -> float:
    """The largest factor on host time, up to 1, whose simulation stays within the stated latency (by bisection)."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if raw.simulate(raw.ops, middle) <= raw.stated_ns else (low, middle)
    return low


def _launch_latency(work: pd.DataFrame) -> float:
    """Median launch-to-start delay of work that found the device idle."""
    waited = work[(work.gap_ns > QUEUED_GAP_NS) & (work.delay_ns > 0)]
    return float(waited.delay_ns.median()) if len(waited) else LAUNCH_LATENCY_NS


def _queued_gap(work: pd.DataFrame) -> float:
    """Median idle time before work that had been launched long before the device was free."""
    queued = work[work.delay_ns > 4 * LAUNCH_LATENCY_NS]
    return min(float(queued.gap_ns.median()), QUEUED_GAP_NS) if len(queued) else QUEUED_GAP_NS
