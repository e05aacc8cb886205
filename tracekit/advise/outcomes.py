"""Predicts the speed-up of an optimization as an interval, from the scenarios of its effect."""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd

from tracekit.advise.limits import remaining_ns, slowest_ns
from tracekit.advise.optimization import Optimization, run_after
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import (
    Baseline,
    Evidence,
    OpList,
    Outcome,
    Reproduction,
    Sources,
    Widths,
    alike,
    interval,
    op_class,
    widths,
    widths_to_decide,
)
from tracekit.analyzers.results import (
    HOST_AND_GAPS,
    NOT_SIMULATED,
    PROFILER,
    Change,
    Check,
    OpClassTime,
    PredictedBaseline,
)

OUTCOMES: tuple[Outcome, ...] = ("worst", "expected", "best")

Host = tuple[float, float]
"""Factors on the host's time for launches, and on its time that the trace does not record (Baseline.hosts)."""
EXPECTED: Host = (1.0, 1.0)
_PARTS = (-1.0, -0.5, 0.5, 1.0)
"""The simulated hosts, as fractions of the width of what is known about the host."""
_NOTHING = 1e-3
"""A smaller change of a logarithm counts as none."""

Scenario = tuple[Outcome, Host]
"""The outcome of the optimization, and the host."""


class Scenarios(msgspec.Struct, frozen=True):
    """The latency of a step in each outcome of an optimization and, for the expected one, on other hosts."""

    after: Mapping[Outcome, Baseline]
    latency_ns: Mapping[Scenario, float]
    work: float
    """The work of a step, relative to the baseline's."""
    hosts: Mapping[float, Host]
    """The simulated hosts, by the logarithm of their slowness."""
    evidence: Evidence
    by_hand: bool = False
    """Whether a person changes the code."""
    keeps_kernels: bool = False
    """Whether no kernel takes less time."""

    @property
    def expected(self) -> Baseline:
        return self.after["expected"]


def refusal(optimization: Optimization, base: Baseline) -> str | None:
    """Return why the optimization cannot be applied to the run: its own objection, or too little memory on the GPU."""
    return optimization.obstacle(base) or too_large(run_after(optimization, base, "expected"), base)


def too_large(after: Baseline, before: Baseline) -> str | None:
    """Return why the run after the change does not fit in the GPU's memory.

    None if it fits, or needs no more memory than before on the same GPU.
    """
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


def scenarios(optimization: Optimization, base: Baseline, host_logs: Sequence[float] = ()) -> Scenarios:
    """Simulate the run with the optimization, in all its outcomes."""
    after = {outcome: run_after(optimization, base, outcome) for outcome in OUTCOMES}
    kinds = optimization.fixes_mistake, optimization.keeps_kernels
    return simulated(after, base, optimization.work(base), host_logs, *kinds)


def unchanged(base: Baseline, host_logs: Sequence[float] = ()) -> Scenarios:
    """Simulate the unmodified run."""
    return simulated(dict.fromkeys(OUTCOMES, base), base, 1.0, host_logs)


def simulated(
    after: Mapping[Outcome, Baseline],
    base: Baseline,
    work: float,
    host_logs: Sequence[float] = (),
    by_hand: bool = False,
    keeps_kernels: bool = False,
) -> Scenarios:
    """Simulate each outcome and, for the expected one, other hosts: by default, those by which advice is chosen."""
    latencies: dict[Scenario, float] = {(outcome, EXPECTED): run.latency_ns for outcome, run in after.items()}
    known = evidence(base, by_hand)
    width = widths_to_decide(known).host
    logs = tuple(host_logs) or tuple(part * width for part in _PARTS)
    expected, hosts = after["expected"], dict(zip(logs, base.hosts(tuple(map(math.exp, logs))), strict=True))
    latencies |= {("expected", host): expected.simulate(expected.ops, *host) for host in hosts.values()}
    return Scenarios(after, latencies, work, hosts, known, by_hand, keeps_kernels)


def evidence(base: Baseline, by_hand: bool = False) -> Evidence:
    """Return the kind of measurement that the predictions of the run start from. What a person makes of another
    script's code stays unknown when the script is timed."""
    if base.source.kind == "modelled":
        return "modelled"
    if base.profiler_share is None:
        return "timed-script" if by_hand and not base.source.capture else "timed"
    return "profiled" if base.source.capture else "script"


def speedup(before: Scenarios, after: Scenarios) -> Interval:
    """Return latency before, divided by that after, as an interval as wide as the errors of such predictions.

    Its lower end is at least 1 if a step takes longer in no simulated outcome and on no simulated host. With more work
    in a step, its upper end is at most that work if the step takes less time in none of them.
    """
    return _interval(before, after, widths(after.evidence), sources(before, after))


def to_decide(before: Scenarios, after: Scenarios) -> Interval:
    """Return the speed-up with the interval by which advice is chosen and ordered. No advice depends on its upper end,
    which is not bounded by what remains of the step."""
    return _interval(before, after, widths_to_decide(after.evidence), sources(before, after, bounded=False))


def _interval(before: Scenarios, after: Scenarios, known: Widths, causes: Sources) -> Interval:
    expected = math.exp(_log_ratio(before, after, ("expected", EXPECTED)))
    return interval(expected, causes, known)


def _most(before: Scenarios, after: Scenarios) -> float:
    """Return the largest possible speed-up: on one host, the step before, divided by what remains of it. A step that
    was timed took that long, and one that was profiled took less."""
    hosts = {0.0: EXPECTED, **before.hosts}
    usual = before.latency_ns["expected", EXPECTED]
    longest = math.inf if before.evidence == "modelled" else max(before.expected.stated_ns, usual)
    left = remaining_ns(after.after.values(), before.expected, before.hosts)
    slowest = slowest_ns(after.after.values(), before.expected)
    ratios = [
        max(min(before.latency_ns["expected", hosts[log]], longest), slowest) / ns if ns else math.inf
        for log, ns in left.items()
    ]
    return after.work / before.work * max(ratios)


def sources(before: Scenarios, after: Scenarios, *, bounded: bool = True) -> Sources:
    """Return the uncertainty of the speed-up by source, and its bounds. Scenarios are the same before and after. Unless
    `bounded`, what remains of the step, which takes most of the time, is not simulated."""
    expected, work = _log_ratio(before, after, ("expected", EXPECTED)), after.work / before.work
    outcomes = [_log_ratio(before, after, (outcome, EXPECTED)) - expected for outcome in after.after]
    hosts = {log: _log_ratio(before, after, ("expected", host)) - expected for log, host in after.hosts.items()}
    changes, most = [*outcomes, *hosts.values()], _most(before, after) if bounded else math.inf
    limit = work if work > 1 and expected + max(changes) < math.log(work) + _NOTHING else math.inf
    ends = (max(0.0, -min(outcomes)), max(0.0, *outcomes))
    waiting = _waiting(before.expected, after.expected, work)
    return Sources(ends, hosts, expected + min(changes) > -_NOTHING, most, limit, after.keeps_kernels, waiting)


def _waiting(before: Baseline, after: Baseline, work: float) -> float:
    """Return the part of the time saved in which the device waits, for `work` times as much work in the step after."""
    saved = before.latency_ns - after.latency_ns / work
    return float(np.clip((before.waiting_ns - after.waiting_ns / work) / saved, 0.0, 1.0)) if saved > 0 else 0.0


def _log_ratio(before: Scenarios, after: Scenarios, scenario: Scenario) -> float:
    work = after.work / before.work
    return math.log(work * before.latency_ns[scenario] / after.latency_ns[scenario])


_NEGLIGIBLE = 0.01
"""A smaller fraction of the step that the simulation does not explain is added to the host's time."""


def change(before: Baseline, after: Baseline, work: float) -> Change:
    """Return `op_class_times`, with the step's work relative to the baseline's."""
    return Change(op_class_times(before, after), work)


def op_class_times(before: Baseline, after: Baseline) -> tuple[OpClassTime, ...]:
    """Return busy times by family of op, longest first, then the host's time. Each column sums to the step's latency.

    The latency before is the stated one. The part of it that the simulation of the unmodified step does not explain is
    scaled like the simulated latency.
    """
    old, new = _by_class(before.ops), _by_class(after.ops)
    names = sorted(old.keys() | new.keys(), key=lambda name: (-old.get(name, 0), -new.get(name, 0), name))
    times = [OpClassTime(name, old.get(name, 0), new.get(name, 0)) for name in names]
    simulated_before, simulated_after = round(before.latency_ns), round(after.latency_ns)
    idle = (simulated_before - sum(old.values()), simulated_after - sum(new.values()))
    stated = round(before.stated_ns)
    stated_after = round(before.stated_ns * after.latency_ns / before.latency_ns)
    rest = (stated - simulated_before, stated_after - simulated_after)
    if abs(rest[0]) < _NEGLIGIBLE * stated:
        return (*times, OpClassTime(HOST_AND_GAPS, idle[0] + rest[0], idle[1] + rest[1]))
    return (
        *times,
        OpClassTime(HOST_AND_GAPS, *idle),
        OpClassTime(PROFILER if is_profiled(before) else NOT_SIMULATED, *rest),
    )


def _by_class(ops: OpList) -> dict[str, int]:
    codes, held = alike(ops.cost, ops.category)
    classes, names = pd.factorize(np.array([op_class(*values) for values in held], dtype=object))
    sums = np.bincount(classes[codes], ops.kernel_ns)
    return dict(zip(names, np.rint(sums).astype(np.int64).tolist(), strict=True))


_DOUBTFUL = (
    "Simulated without changes, the step takes {simulated:.0f} µs, {error:+.0f} % off the {stated:.0f} µs that it "
    "took. This exceeds 5 %: the simulation misses a part of the step."
)
_PROFILED = (
    "The trace times steps only under a profiler, whose overhead is estimated as {share:.0f} % of the latency "
    "({low:.0f} % to {high:.0f} % of the host's time). The latencies here include it, the speed-up does not."
)


def start_of(base: Baseline) -> PredictedBaseline:
    """Return the step that predictions start from."""
    profiled = is_profiled(base)
    return PredictedBaseline(
        latency_us=base.stated_ns / 1e3,
        timed="profiled" if profiled else "modelled" if base.source.kind == "modelled" else "unprofiled",
        profiler_share=max(0.0, 1 - base.latency_ns / base.stated_ns) if profiled and base.stated_ns else None,
        host_speed=base.host_speed,
        idle_share=base.idle_share,
        memory=base.memory,
        as_traced=_check(base.as_traced) if base.as_traced else None,
        calibrated=None if profiled else _check(base.calibrated),
    )


def doubts(base: Baseline) -> tuple[str, ...]:
    """Return the caveats about the baseline for any prediction from it."""
    start = start_of(base)
    notes = []
    if start.profiler_share is not None and base.profiler_share is not None:
        of_host = base.profiler_share
        notes.append(_PROFILED.format(share=100 * start.profiler_share, low=100 * of_host.low, high=100 * of_host.high))
    if failed := start.failed:
        notes.append(_DOUBTFUL.format(simulated=failed.simulated_us, stated=failed.stated_us, error=100 * failed.error))
    return tuple(notes)


def is_profiled(base: Baseline) -> bool:
    """Return whether the stated latency includes the overhead of a profiler."""
    return base.profiler_share is not None


def _check(reproduction: Reproduction) -> Check:
    return Check(reproduction.stated_us, reproduction.simulated_us, reproduction.error, reproduction.holds)
