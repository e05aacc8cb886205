"""Host time per op class on a machine: assumed from its GPU, or calibrated."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute import matching
from tracekit.analyzers.core import Interval, Ints, numbers, toml_table
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict.simulation import Floats
from tracekit.analyzers.results import HostSpeed

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


class HostCosts(msgspec.Struct, frozen=True):
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
        op_us=_scaled_costs(host.expected),
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
        op_us=_scaled_costs(base_us),
        base_us=base_us,
        span=Interval(known["low"], 1.0, known["high"]),
        source=f"calibrated on this machine on {when}",
        calibrated=True,
    )


def _scaled_costs(base_us: float) -> dict[str, float]:
    op_us = _table()["op_us"]
    return {name: op_us.get(name, op_us["launch"]) * base_us / reference_us() for name in CLASSES}


@cache
def _table() -> dict[str, Any]:
    return toml_table(Path(__file__).with_name("host_costs.toml"))


MOST_TO_LAUNCH_NS = 500_000.0
"""Longest host time before a launch that counts as launching. Beyond it, time belongs to data loading, compiling, or
the caller's Python."""
MOST_A_LAUNCH_NS = 50_000.0
"""The same limit for each launch of an op that launches many kernels, such as one GEMM for each of 64 experts."""


def beyond_launching(host_ns: Floats, launches: Floats | Ints) -> Floats:
    """Return the part of each op's host time that is longer than its launches take."""
    return np.maximum(host_ns - np.maximum(MOST_TO_LAUNCH_NS, launches * MOST_A_LAUNCH_NS), 0.0)


_NUMBERS = numbers(__file__)
LAUNCH_CALL_NS = _NUMBERS["launch_call_ns"]
"""Duration of a launch call under torch.profiler, the 25th percentile of a step, on a machine on which an average
launch of GPT-2 takes `reference_us`."""
_CALL = 0.25
"""Quantile of the calls' durations that counts: longer calls waited for a full queue or loaded a kernel."""
_CALLS = 20
"""Fewest launch calls that determine it."""
_NAMES = re.compile(r"launch.*kernel|kernel.*launch", re.IGNORECASE)


REFERENCE = HostSpeed(1.0, "assumed")


def host_speed(work: pd.DataFrame, host: pd.DataFrame, gpu: GPU) -> HostSpeed:
    """Return the speed of a run's host by the calls (rows of `host`) that launched its kernels, or the assumed speed if
    too few were recorded."""
    launched = work.launch[(work.category == "kernel") & (work.launch >= 0)].drop_duplicates().to_numpy()
    calls = host[["name", "duration_ns"]].iloc[launched]
    calls = calls[matching(calls.name, _NAMES)]
    if len(calls) < _CALLS:
        return HostSpeed(_ratio(gpu.host_op_us), "assumed")
    return HostSpeed(float(calls.duration_ns.quantile(_CALL)) / LAUNCH_CALL_NS, "calls")


def modelled_speed(host_op_us: Interval) -> HostSpeed:
    """Return the speed of a modelled run's host; `host_op_us` is the host time of an average launch of GPT-2 on it."""
    return HostSpeed(_ratio(host_op_us), "modelled")


def _ratio(host_op_us: Interval) -> float:
    return host_op_us.expected / reference_us()
