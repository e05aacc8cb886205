"""What ops cost the host of a machine, by class: assumed for the machines that a GPU sits in, or calibrated."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval

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
"""Ops that launch, by what they compute (pointwise: all others); ops that launch nothing (view); recording an op for
autograd; a node of the backward pass, and an op launched there; a tensor of a multi-tensor op (optimizer); a call of a
module, and what one of the outermost takes beside (model); reading a value back (sync)."""


@dataclass(frozen=True)
class HostCosts:
    """Host time of one op of each of CLASSES on one machine."""

    op_us: Mapping[str, float]
    base_us: float
    """Host time of an average kernel-launching op of GPT-2, all around it included; the others scale with it."""
    span: Interval
    """Factors on all of them, from a fast such machine to a slow one."""
    source: str
    """Where they come from, to be shown."""
    calibrated: bool = False

    def scaled(self, factor: float) -> "HostCosts":
        scaled = {name: cost * factor for name, cost in self.op_us.items()}
        return replace(self, op_us=scaled, base_us=self.base_us * factor)


def assumed(gpu: GPU) -> HostCosts:
    """Those of machines that such GPUs sit in; none of them was measured."""
    host = gpu.host_op_us
    return HostCosts(
        op_us=_at(host.expected),
        base_us=host.expected,
        span=Interval(host.low / host.expected, 1.0, host.high / host.expected),
        source=f"assumed: {host.low:g} to {host.high:g} µs on machines with such a GPU; tracekit calibrate measures it",
    )


def calibrated(probe_us: Mapping[str, Interval], when: str) -> HostCosts | None:
    """Those of a machine by what was measured on it: class -> host time of a bare call. None if that tells nothing.

    A bare call takes less than the same in a model, so that the ratio to the machine of the fit counts.
    """
    reference, known = _table()["probe_us"], _table()["calibrated"]
    shared = [name for name in reference if name in probe_us]
    if not shared:
        return None
    ratios = sorted(probe_us[name].expected / reference[name] for name in shared)
    base_us = _table()["fit"]["base_us"] * known["ratio"] * ratios[len(ratios) // 2]
    return HostCosts(
        op_us=_at(base_us),
        base_us=base_us,
        span=Interval(known["low"], 1.0, known["high"]),
        source=f"calibrated on this machine on {when}",
        calibrated=True,
    )


def _at(base_us: float) -> dict[str, float]:
    table = _table()
    return {name: table["op_us"][name] * base_us / table["fit"]["base_us"] for name in CLASSES}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "host_costs.toml").read_text(encoding="utf-8"))
