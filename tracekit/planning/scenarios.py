"""From a transform to a predicted speed-up, as an interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.uncertainty import Evidence, Sources, interval, widths
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.base import Optimization

OUTCOMES: tuple[Outcome, ...] = ("low", "expected", "high")

Host = tuple[float, float]
"""Factors on the host's launching, and on its time without a record (Baseline.hosts)."""
EXPECTED: Host = (1.0, 1.0)

_PARTS = (-1.0, -0.5, 0.5, 1.0)
"""Hosts that are simulated, as parts of the width of what is known about the host."""

_NOTHING = 1e-3
"""Change of a logarithm that is none."""

Scenario = tuple[Outcome, Host]
"""How the optimization turns out, and on which host."""


@dataclass(frozen=True)
class Scenarios:
    """Latency of a step for each way that an optimization may turn out, and, as expected, for other host times."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[Scenario, float]
    work: float
    """How many times the baseline's work a step does."""
    hosts: Mapping[float, Host]
    """By the logarithm of how many times as slow they are."""
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


def scenarios(optimization: Optimization, base: Baseline, host_logs: Sequence[float] = ()) -> Scenarios:
    after = {outcome: optimization.applied(base, outcome) for outcome in OUTCOMES}
    return simulated(after, base, optimization.work(base), host_logs)


def unchanged(base: Baseline, host_logs: Sequence[float] = ()) -> Scenarios:
    return simulated(dict.fromkeys(OUTCOMES, base), base, 1.0, host_logs)


def simulated(
    after: Mapping[Outcome, Baseline], base: Baseline, work: float, host_logs: Sequence[float] = ()
) -> Scenarios:
    """Simulate each outcome, and the expected one on other hosts: by default, as far as such evidence leaves open."""
    latencies: dict[Scenario, float] = {(outcome, EXPECTED): run.latency_ns for outcome, run in after.items()}
    width = widths(evidence(base)).host
    logs = tuple(host_logs) or tuple(part * width for part in _PARTS)
    expected, hosts = after["expected"], dict(zip(logs, base.hosts(tuple(map(math.exp, logs))), strict=True))
    latencies |= {("expected", host): expected.simulate(expected.ops, *host) for host in hosts.values()}
    return Scenarios(after, latencies, work, hosts, evidence(base))


def evidence(base: Baseline) -> Evidence:
    """What the predictions of a run start from."""
    if base.source.kind == "modelled":
        return "modelled"
    return "timed" if base.profiler_share is None else "profiled"


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Return before over after, as an interval as wide as such predictions were off.

    Its lower end is at least 1 where no outcome and no host was simulated on which a step takes longer.
    """
    expected = math.exp(_log_ratio(before, after, ("expected", EXPECTED)))
    open_to = sources(before, after)
    found = interval(expected, open_to, widths(after.evidence))
    least = math.log(expected) - max(open_to.outcome[0], *(-change for change in open_to.host.values()))
    sure = min(1.0, expected * math.exp(-widths(after.evidence).repeat))
    return replace(found, low=max(found.low, sure)) if least > -_NOTHING else found


def sources(before: Scenarios, after: Scenarios) -> Sources:
    """What the speed-up depends on that is not known: scenario by scenario, as it is the same before and after."""
    expected = _log_ratio(before, after, ("expected", EXPECTED))
    outcomes = [_log_ratio(before, after, (outcome, EXPECTED)) - expected for outcome in after.after]
    hosts = {log: _log_ratio(before, after, ("expected", host)) - expected for log, host in after.hosts.items()}
    return Sources(outcome=(max(0.0, -min(outcomes)), max(0.0, *outcomes)), host=hosts)


def _log_ratio(before: Scenarios, after: Scenarios, scenario: Scenario) -> float:
    work = after.work / before.work
    return math.log(work * before.latency_ns[scenario] / after.latency_ns[scenario])
