"""Predicts the speed-up of an optimization as an interval, from the scenarios of its effect."""

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
"""Factors on the host's times, between which the sensitivity to a drift of the host is measured."""

Host = tuple[float, float]
"""Factors on the host's time for launches, and on its time that the trace does not record (Baseline.hosts)."""
EXPECTED: Host = (1.0, 1.0)

Scenario = tuple[Outcome, Host]
"""The outcome of the optimization, and the host."""


@dataclass(frozen=True)
class Scenarios:
    """The latency of a step in each outcome of an optimization and, for the expected one, with other host times."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[Scenario, float]
    work: float
    """The work of a step, relative to the baseline's."""
    hosts: tuple[Host, ...]
    """The hosts that are possible by the evidence."""
    evidence: Evidence

    @property
    def expected(self) -> Baseline:
        return self.after["expected"]


def refusal(optimization: Optimization, base: Baseline) -> str | None:
    """Return why the optimization cannot be applied to the run: its own objection, or too little memory on the GPU."""
    return optimization.obstacle(base) or too_large(optimization.applied(base, "expected"), base)


def too_large(after: Baseline, before: Baseline) -> str | None:
    """Return why the run after the change does not fit in the GPU's memory; None if it fits, or did not fit before
    either."""
    here, there = before.source.capture, after.source.capture
    if here is None or there is None:
        return None
    needed, has = there.peak_memory_bytes, after.gpu.memory_bytes
    grows = needed > here.peak_memory_bytes or after.gpu != before.gpu
    if needed <= has or not grows:
        return None
    return f"It needs {needed / 1e9:.1f} GB; {after.gpu.name} has {has / 1e9:.0f} GB."


def predicted_speedup(optimization: Optimization, base: Baseline) -> Interval:
    """Return the end-to-end speed-up of one step: latency before, divided by that after, times the relative work."""
    return speedup(unchanged(base), scenarios(optimization, base))


def scenarios(optimization: Optimization, base: Baseline) -> Scenarios:
    """Simulate the run with the optimization, in all its outcomes."""
    after = {outcome: optimization.applied(base, outcome) for outcome in OUTCOMES}
    return simulated(after, base, optimization.work(base))


def unchanged(base: Baseline) -> Scenarios:
    """Simulate the unmodified run."""
    return simulated(dict.fromkeys(OUTCOMES, base), base, 1.0)


def simulated(after: Mapping[Outcome, Baseline], base: Baseline, work: float) -> Scenarios:
    """Simulate each outcome and, for the expected one, other host times."""
    latencies: dict[Scenario, float] = {(outcome, EXPECTED): run.latency_ns for outcome, run in after.items()}
    expected, hosts = after["expected"], {*base.hosts, (SLOWER, 1.0), (FASTER, 1.0)} - {EXPECTED}
    latencies |= {("expected", host): expected.simulate(expected.ops, *host) for host in hosts}
    return Scenarios(after, latencies, work, base.hosts, evidence(base))


def evidence(base: Baseline) -> Evidence:
    """Return the kind of measurement that the predictions of the run start from."""
    if base.source.kind == "modelled":
        return "modelled"
    return "timed" if base.profiler_share is None else "profiled"


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Return latency before, divided by that after, as an interval as wide as the errors of such predictions."""
    expected = math.exp(_log_ratio(before, after, ("expected", EXPECTED)))
    return interval(expected, sources(before, after), widths(after.evidence))


def sources(before: Scenarios, after: Scenarios) -> Sources:
    """Return the uncertainty of the speed-up by source. Each scenario is the same before and after."""
    expected = _log_ratio(before, after, ("expected", EXPECTED))

    def ends(scenarios: Iterable[Scenario]) -> Ends:
        changes = [_log_ratio(before, after, each) - expected for each in scenarios]
        return max(0.0, -min(changes)), max(0.0, *changes)

    slower, faster = (_log_ratio(before, after, ("expected", (factor, 1.0))) for factor in (SLOWER, FASTER))
    return Sources(
        outcome=ends((outcome, EXPECTED) for outcome in after.after),
        host=ends(("expected", host) for host in after.hosts),
        drift=abs(slower - faster) / math.log(SLOWER / FASTER),
    )


def _log_ratio(before: Scenarios, after: Scenarios, scenario: Scenario) -> float:
    work = after.work / before.work
    return math.log(work * before.latency_ns[scenario] / after.latency_ns[scenario])
