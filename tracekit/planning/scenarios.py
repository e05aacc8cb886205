"""From a transform to a predicted speed-up, as an interval."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.uncertainty import Ends, Evidence, Sources, interval, widths
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.base import Optimization

OUTCOMES: tuple[Outcome, ...] = ("low", "expected", "high")

SLOWER, FASTER = 1.25, 0.8
"""Factors on the host's times between which the drift of a host is looked at."""

Host = tuple[float, float]
"""Factors on the host's launching, and on its time without a record (Baseline.hosts)."""
EXPECTED: Host = (1.0, 1.0)

Scenario = tuple[Outcome, Host]
"""How the optimization turns out, and on which host."""


@dataclass(frozen=True)
class Scenarios:
    """Latency of a step for each way that an optimization may turn out, and, as expected, for other host times."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[Scenario, float]
    work: float
    """How many times the baseline's work a step does."""
    hosts: tuple[Host, ...]
    """Those that the evidence leaves open."""
    evidence: Evidence

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
    """End-to-end speed-up of one step: latency before over after, times the work done."""
    return speedup(unchanged(base), scenarios(optimization, base))


def scenarios(optimization: Optimization, base: Baseline) -> Scenarios:
    after = {outcome: optimization.applied(base, outcome) for outcome in OUTCOMES}
    return simulated(after, base, optimization.work(base))


def unchanged(base: Baseline) -> Scenarios:
    return simulated(dict.fromkeys(OUTCOMES, base), base, 1.0)


def simulated(after: Mapping[Outcome, Baseline], base: Baseline, work: float) -> Scenarios:
    """Simulate each outcome, and the expected one with other host times."""
    latencies: dict[Scenario, float] = {(outcome, EXPECTED): run.latency_ns for outcome, run in after.items()}
    expected, hosts = after["expected"], {*base.hosts, (SLOWER, 1.0), (FASTER, 1.0)} - {EXPECTED}
    latencies |= {("expected", host): expected.simulate(expected.ops, *host) for host in hosts}
    return Scenarios(after, latencies, work, base.hosts, evidence(base))


def evidence(base: Baseline) -> Evidence:
    """What the predictions of a run start from."""
    if base.source.kind == "modelled":
        return "modelled"
    return "timed" if base.profiler_share is None else "profiled"


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Before over after, as an interval as wide as such predictions were off."""
    expected = math.exp(_log_ratio(before, after, ("expected", EXPECTED)))
    return interval(expected, sources(before, after), widths(after.evidence))


def sources(before: Scenarios, after: Scenarios) -> Sources:
    """What the speed-up depends on that is not known: scenario by scenario, as it is the same before and after."""
    expected = _log_ratio(before, after, ("expected", EXPECTED))

    def ends(scenarios: Iterable[Scenario]) -> Ends:
        found = [_log_ratio(before, after, each) - expected for each in scenarios]
        return max(0.0, -min(found)), max(0.0, *found)

    slower, faster = (_log_ratio(before, after, ("expected", (factor, 1.0))) for factor in (SLOWER, FASTER))
    return Sources(
        outcome=ends((outcome, EXPECTED) for outcome in after.after),
        host=ends(("expected", host) for host in after.hosts),
        drift=abs(slower - faster) / math.log(SLOWER / FASTER),
    )


def _log_ratio(before: Scenarios, after: Scenarios, scenario: Scenario) -> float:
    work = after.work / before.work
    return math.log(work * before.latency_ns[scenario] / after.latency_ns[scenario])
