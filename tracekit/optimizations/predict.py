"""From a transform to a predicted speed-up, as an interval."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import held
from tracekit.optimizations.base import Optimization, Outcome

OUTCOMES: tuple[Outcome, ...] = ("low", "expected", "high")


@dataclass(frozen=True)
class Scenarios:
    """Latency of one step for each way that an optimization may turn out, on each host that the evidence leaves open."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[tuple[Outcome, float], float]
    """By outcome and factor on the host's times."""
    host: float
    """The expected factor."""
    work: float
    """How many times the baseline's work a step does."""


def refusal(optimization: Optimization, base: Baseline) -> str | None:
    """Why it cannot be done to this run: its own objection, or that the GPU's memory does not hold it."""
    return optimization.objection(base) or _too_large(optimization, base)


def _too_large(optimization: Optimization, base: Baseline) -> str | None:
    capture = base.source.capture
    before = held(capture, base.ops) if capture else None
    if before is None:
        return None
    needed, gpu = optimization.memory(base, before).peak, base.gpu
    if needed <= max(gpu.memory_bytes, before.peak):
        return None
    return f"It needs {needed / 1e9:.1f} GB; {gpu.name} has {gpu.memory_bytes / 1e9:.0f} GB."


def predicted_speedup(optimization: Optimization, base: Baseline) -> Interval:
    """End-to-end speed-up of one step: latency before over after, times the work done.

    The ends are the extremes over how well the optimization turns out and over the host times that the evidence
    leaves open.
    """
    return speedup(unchanged(base), scenarios(optimization, base))


def scenarios(optimization: Optimization, base: Baseline) -> Scenarios:
    after = {outcome: optimization.applied(base, outcome) for outcome in OUTCOMES}
    return _simulated(after, base, optimization.work(base))


def unchanged(base: Baseline) -> Scenarios:
    return _simulated(dict.fromkeys(OUTCOMES, base), base, 1.0)


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Before over after, scenario by scenario: what is unknown is the same in both."""
    work = after.work / before.work
    ratios = {key: work * before.latency_ns[key] / after.latency_ns[key] for key in after.latency_ns}
    return Interval(min(ratios.values()), ratios["expected", after.host], max(ratios.values()))


def _simulated(after: Mapping[Outcome, Baseline], base: Baseline, work: float) -> Scenarios:
    hosts = {base.host_range.low, base.host_range.expected, base.host_range.high}
    latencies = {(o, host): after[o].simulate(after[o].ops, host) for o, host in product(after, hosts)}
    return Scenarios(after, latencies, base.host_range.expected, work)
