"""Host time per op class on a machine: assumed from its GPU, or calibrated."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict.outside import Outside
from tracekit.analyzers.predict.simulation import Floats, Nanoseconds
from tracekit.analyzers.results import HostSpeed

if TYPE_CHECKING:
    from tracekit.analyzers.predict.step_baseline import Baseline


CLASSES = (
    "gemm",
    "attention",
    "norm",
    "pointwise",
    "view",
    "autograd",
    "backward",
    "backward_op",
    "optimizer",
    "module",
    "model",
    "sync",
)
"""Classes of ops by their host time.

gemm, attention, norm, pointwise: ops that launch kernels; pointwise includes all others. view: ops that launch nothing.
autograd: recording of an op. backward: a node of the backward pass. backward_op: an op launched in it. optimizer: one
tensor of a multi-tensor op. module: a call of a module. model: extra time of an outermost module. sync: reading a value
back.
"""


@dataclass(frozen=True)
class HostCosts:
    """Host time of one op of each of CLASSES on one machine."""

    op_us: Mapping[str, float]
    base_us: float
    """Host time of an average kernel-launching op of GPT-2, including its surroundings. Other costs scale with it."""
    span: Interval
    """Factors on all costs, from a fast machine with this GPU to a slow one."""
    source: str
    """Origin of the costs, for display."""
    calibrated: bool = False

    def scaled(self, factor: float) -> "HostCosts":
        scaled = {name: cost * factor for name, cost in self.op_us.items()}
        return replace(self, op_us=scaled, base_us=self.base_us * factor)


def reference_us() -> float:
    """Return the host time of an average kernel-launching op of GPT-2 on the reference machine, in µs."""
    return float(_table()["fit"]["base_us"])


def assumed(gpu: GPU) -> HostCosts:
    """Return the assumed costs of machines with this GPU. None of them was measured."""
    host = gpu.host_op_us
    return HostCosts(
        op_us=_at(host.expected),
        base_us=host.expected,
        span=Interval(host.low / host.expected, 1.0, host.high / host.expected),
        source=f"assumed: {host.low:g} to {host.high:g} µs on machines with such a GPU; tracekit calibrate measures it",
    )


def calibrated(probe_us: Mapping[str, Interval], when: str) -> HostCosts | None:
    """Return the costs of a machine from measured host times of bare calls per class; None if these are not sufficient.

    A bare call is faster than the same call in a model, so only the ratio to the reference machine is used.
    """
    reference, known = _table()["probe_us"], _table()["calibrated"]
    shared = [name for name in reference if name in probe_us]
    if not shared:
        return None
    ratios = sorted(probe_us[name].expected / reference[name] for name in shared)
    base_us = reference_us() * known["ratio"] * ratios[len(ratios) // 2]
    return HostCosts(
        op_us=_at(base_us),
        base_us=base_us,
        span=Interval(known["low"], 1.0, known["high"]),
        source=f"calibrated on this machine on {when}",
        calibrated=True,
    )


def _at(base_us: float) -> dict[str, float]:
    op_us = _table()["op_us"]
    return {name: op_us.get(name, op_us["launch"]) * base_us / reference_us() for name in CLASSES}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "host_costs.toml").read_text(encoding="utf-8"))


MOST_TO_LAUNCH_NS = 500_000.0
"""Longest host time before a launch that counts as launching. Beyond it, time belongs to data loading, compiling, or
the caller's Python."""
MOST_A_LAUNCH_NS = 50_000.0
"""The same limit for each launch of an op that launches many kernels, such as one GEMM for each of 64 experts."""
_SAME = 0.03
"""Relative tolerance of a simulated latency, because kernel times vary as much under a profiler."""
_TOLD = 0.9
"""Ratio of the smallest to the largest host time that reproduces a latency, above which the latency determines the
host time."""


def beyond_launching(host_ns: Floats, launches: Floats | Nanoseconds) -> Floats:
    """Return the part of each op's host time that is longer than its launches take."""
    return np.maximum(host_ns - np.maximum(MOST_TO_LAUNCH_NS, launches * MOST_A_LAUNCH_NS), 0.0)


def modelled(raw: "Baseline") -> "Baseline":
    """Return the baseline with the range by which the modelled run's host may differ from the assumed host."""
    capture = raw.source.capture
    if capture is None or not capture.host_op_low_us:
        host = raw.gpu.host_op_us
    else:
        host = Interval(capture.host_op_low_us, capture.host_op_us, capture.host_op_high_us)
    host_range = Interval(host.low / host.expected, 1.0, host.high / host.expected)
    return replace(raw, host_range=host_range, host_speed=modelled_speed(host))


def profiled(raw: "Baseline", share: Interval) -> "Baseline":
    """Return the baseline with unprofiled host time, limited to what fits the step: a launch into a full queue
    waits."""
    most = _largest_host_factor(raw)
    low, expected, high = (min(1 - part, most) for part in (share.high, share.expected, share.low))
    open_range = Interval(low / expected, 1.0, high / expected) if expected else Interval(1.0, 1.0, 1.0)
    return replace(_scaled(raw, expected), host_range=open_range, profiler_share=share)


def timed(raw: "Baseline", share: Interval) -> "Baseline":
    """Scale host time to the unprofiled latency, and kernel time too if the kernels alone exceed it.

    If a step waits for its kernels, its latency is the same for all host times below some bound, so a profiler's usual
    share is subtracted. On an H200's host, 0.32 to 0.50 (median 0.42) of the traced host time remained in fifteen
    host-bound steps. If the remaining time exceeds typical launch times on such machines, both are estimates, and their
    geometric mean is used.
    """
    raw = _fitting(raw)
    floor = raw.simulate(raw.ops, 0.0)
    if floor > raw.stated_ns:
        raw = replace(raw, ops=raw.ops.assign(kernel_ns=raw.ops.kernel_ns * raw.stated_ns / floor))
    most = _largest_host_factor(raw)
    least = _largest_host_factor(raw, 1 - _SAME)
    open_to_less = least < _TOLD * most
    usual = (1 - share.expected) * min(1.0, _of_machine(raw) / (1 - share.expected)) ** 0.5
    expected = min(max(usual, least), most) if open_to_less else most
    low, high = max(least, min(1 - share.high, expected)), max(min(1 - share.low, most), expected)
    open_range = Interval(low / expected, 1.0, high / expected) if expected else raw.host_range
    speed = raw.host_speed.drifted(expected / (1 - share.expected))
    return replace(_scaled(raw, expected), host_range=open_range, host_speed=speed)


def _fitting(raw: "Baseline") -> "Baseline":
    """Limit the work outside the model to what fits the step: part of the recorded time is the profiler's."""
    bare = replace(raw, outside=Outside())
    least, floor = bare.simulate(bare.ops, 0.0), raw.simulate(raw.ops, 0.0)
    if floor <= max(raw.stated_ns, least):
        return raw
    return replace(raw, outside=raw.outside.scaled(max(0.0, raw.stated_ns - least) / (floor - least)))


def _of_machine(raw: "Baseline") -> float:
    """Return the factor on host time that gives the launch times of machines with this GPU."""
    launching = float(np.minimum(raw.ops.host_ns, MOST_TO_LAUNCH_NS).sum())
    return len(raw.ops) * raw.gpu.host_op_us.expected * 1e3 / launching if launching else 1.0


def _scaled(raw: "Baseline", factor: float) -> "Baseline":
    return replace(
        raw,
        ops=raw.ops.assign(host_ns=raw.ops.host_ns * factor),
        recorded=raw.recorded.scaled(factor),
        entry_ns=raw.entry_ns * factor,
        tail=raw.tail and raw.tail.scaled(factor),
    )


def _largest_host_factor(raw: "Baseline", part: float = 1.0) -> float:
    """Return the largest factor on host time, up to 1, whose simulated latency is at most `part` of the stated one.
    Uses bisection."""
    low, high = 0.0, 1.0
    if raw.latency_ns <= raw.stated_ns * part:
        return 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if raw.simulate(raw.ops, middle) <= raw.stated_ns * part else (low, middle)
    return low


LAUNCH_CALL_NS = 4_200.0
"""Duration of a launch call under torch.profiler, the 25th percentile of a step, on a machine on which an average
launch of GPT-2 takes `reference_us`. Hosts of H200s and H100s took 3.1 to 8.9 µs: 0.7 to 2.1 times as long."""
_CALL = 0.25
"""Quantile of the calls' durations that counts: longer calls waited for a full queue or loaded a kernel."""
_CALLS = 20
"""Fewest launch calls that determine it."""
_NAMES = r"(?i)launch.*kernel|kernel.*launch"


REFERENCE = HostSpeed(1.0, "assumed")


def host_speed(work: pd.DataFrame, host: pd.DataFrame, gpu: GPU) -> HostSpeed:
    """Return the speed of a run's host by the calls (rows of `host`) that launched its kernels, or the assumed speed if
    too few were recorded."""
    launched = work.launch[(work.category == "kernel") & (work.launch >= 0)].drop_duplicates().to_numpy()
    calls = host.iloc[launched]
    calls = calls[calls.name.astype(str).str.contains(_NAMES)]
    if len(calls) < _CALLS:
        return HostSpeed(_ratio(gpu.host_op_us), "assumed")
    return HostSpeed(float(calls.duration_ns.quantile(_CALL)) / LAUNCH_CALL_NS, "calls")


def modelled_speed(host_op_us: Interval) -> HostSpeed:
    """Return the speed of a modelled run's host; `host_op_us` is the host time of an average launch of GPT-2 on it."""
    return HostSpeed(_ratio(host_op_us), "modelled")


def _ratio(host_op_us: Interval) -> float:
    return host_op_us.expected / reference_us()
