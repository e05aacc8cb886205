"""From a transform to a predicted speed-up, as an interval."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.transforms.by_cost import each
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.base import Optimization

OUTCOMES: tuple[Outcome, ...] = ("low", "expected", "high")

_PRODUCTS = ("gemm", "convolution")
_MIXES = ((1.0, 1.0), (0.87, 1.35), (1.15, 0.75))
"""Real over modelled kernel time, of products and of what is bound by memory: how wrong the model may be about either
where nothing was measured."""

REPEATED = 0.015
"""As far as the same, measured twice, may differ: on an H200 TF32 made steps without 32-bit products 0.99 to 1.01 times
as fast, and batches that the host paces 7.6 to 8.2 times as much in place of 8."""

Scenario = tuple[Outcome, tuple[float, float], int]
"""How the optimization turns out, the factors on the host's times, and which of the mixes."""


@dataclass(frozen=True)
class Scenarios:
    """Latency of a step for each way that an optimization may turn out, on each host that the evidence leaves open."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[Scenario, float]
    host: tuple[float, float]
    """The expected factors."""
    work: float
    """How many times the baseline's work a step does."""

    @property
    def expected(self) -> Baseline:
        return self.after["expected"]


def refusal(optimization: Optimization, base: Baseline) -> str | None:
    """Why it cannot be done to this run: its own objection, or that the GPU's memory does not hold it."""
    return optimization.obstacle(base) or too_large(optimization.applied(base, "expected"), base)


def too_large(after: Baseline, before: Baseline) -> str | None:
    """That the GPU does not hold what it held before, or more than that."""
    here, there = before.source.capture, after.source.capture
    if here is None or there is None:
        return None
    needed, has = there.peak_memory_bytes, after.gpu.memory_bytes
    grows = needed > here.peak_memory_bytes or after.gpu != before.gpu
    if needed <= has or not grows:
        return None
    return f"It needs {needed / 1e9:.1f} GB; {after.gpu.name} has {has / 1e9:.0f} GB."


def predicted_speedup(optimization: Optimization, base: Baseline) -> Interval:
    """End-to-end speed-up of one step: latency before over after, times the work done.

    The ends are the extremes over how well the optimization turns out and over the host times (of a modelled run,
    kernel times, too) that the evidence leaves open.
    """
    return speedup(unchanged(base), scenarios(optimization, base))


def scenarios(optimization: Optimization, base: Baseline) -> Scenarios:
    after = {outcome: optimization.applied(base, outcome) for outcome in OUTCOMES}
    return simulated(after, base, optimization.work(base))


def unchanged(base: Baseline) -> Scenarios:
    return simulated(dict.fromkeys(OUTCOMES, base), base, 1.0)


def simulated(after: Mapping[Outcome, Baseline], base: Baseline, work: float) -> Scenarios:
    """`after` on the hosts, and with the kernels, that the evidence about `base` leaves open."""
    hosts = set(base.hosts)
    mixes = range(len(_MIXES) if base.source.kind == "modelled" else 1)
    latencies: dict[Scenario, float] = {}
    for (outcome, run), mix in product(after.items(), mixes):
        ops = _mixed(run.ops, mix)
        latencies |= {(outcome, host, mix): run.simulate(ops, *host) for host in hosts}
    return Scenarios(after, latencies, base.hosts[1], work)


def _mixed(ops: pd.DataFrame, mix: int) -> pd.DataFrame:
    if not mix:
        return ops
    products, rest = _MIXES[mix]
    factors = each(lambda cost: _factor(cost, products, rest), ops.cost, dtype=float)
    return ops.assign(kernel_ns=ops.kernel_ns * factors)


def _factor(cost: Cost | None, products: float, rest: float) -> float:
    if cost is None or cost.family == "attention":
        return 1.0
    return products if cost.family in _PRODUCTS else rest


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Before over after, scenario by scenario: what is unknown is the same in both."""
    ratios = _ratios(before, after)
    low, high = min(ratios.values()) * (1 - REPEATED), max(ratios.values()) * (1 + REPEATED)
    return Interval(low, ratios["expected", after.host, 0], high)


def lower_end(before: Scenarios, after: Scenarios) -> float:
    """The least speed-up of the scenarios that were simulated."""
    return min(_ratios(before, after).values()) * (1 - REPEATED)


def _ratios(before: Scenarios, after: Scenarios) -> dict[Scenario, float]:
    work = after.work / before.work
    return {key: work * before.latency_ns[key] / after.latency_ns[key] for key in after.latency_ns}
