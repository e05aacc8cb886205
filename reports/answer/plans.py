"""The plan as every output shows it: each step by its own move, and a bar for the time that is left after it."""

from collections.abc import Mapping, Sequence

import msgspec
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import (
    HOST_AND_GAPS,
    NOT_SIMULATED,
    PROFILER,
    Analysis,
    Change,
    OpClassTime,
    PlanStep,
    PredictedBaseline,
)

Shares = Mapping[str, float]
_HOST = (HOST_AND_GAPS, NOT_SIMULATED)


def planned(analysis: Analysis) -> tuple[PlanStep, ...]:
    """Return the steps of the plan, each explained from the result of the steps before it, all without the profiler."""
    start, steps, before = analysis.predicted_from, [], None
    for step in analysis.plan:
        after = unprofiled(step.explained)
        taken = _scaled(step.latency_us, start) if start else step.latency_us
        steps.append(replace(step, explained=_own_move(after, before), latency_us=taken))
        before = after
    return tuple(steps)


def unprofiled(change: Change | None) -> Change | None:
    """Return the change without the part of the latency that is due to the profiler."""
    if change is None:
        return None
    return Change(tuple(each for each in change.by_op_class if each.op_class != PROFILER), change.work)


def _own_move(after: Change | None, before: Change | None) -> Change | None:
    if after is None or before is None:
        return after
    then = {each.op_class: each.after_ns for each in before.by_op_class}
    now = {each.op_class: each.after_ns for each in after.by_op_class}
    names = [*then, *(name for name in now if name not in then)]
    return Change(tuple(OpClassTime(name, then.get(name, 0), now.get(name, 0)) for name in names), after.work)


def _scaled(latency_us: Interval, start: PredictedBaseline) -> Interval:
    factor = start.unprofiled_us / start.latency_us if start.latency_us else 1.0
    return Interval(latency_us.low * factor, latency_us.expected * factor, latency_us.high * factor)


class Bar(msgspec.Struct, frozen=True):
    """A step of the run, as it is or after a step of the plan and all before it."""

    title: str
    latency_us: Interval
    by_bound: Shares
    """Bound -> part of the latency, 0 to 1."""


def bars(analysis: Analysis) -> list[Bar]:
    """Return a bar for the step as it is, and one after each step of the plan for latency; none without such a plan.

    Work of a class of ops is bound by the same as now, and what the device waits for is launch.
    """
    start, steps = analysis.predicted_from, [step for step in planned(analysis) if step.cumulative]
    if start is None or not steps:
        return []
    now = start.unprofiled_us
    bounds = _bounds_by_class(analysis)
    shares = {bound: share for bound, share in analysis.bound.ranked() if share}
    first = Bar("As it is", Interval(now, now, now), shares)
    return [first, *(Bar(step.title, step.latency_us, _by_bound(step.explained, bounds, [*shares])) for step in steps)]


def _by_bound(change: Change | None, bounds: Mapping[str, Shares], order: Sequence[str]) -> Shares:
    """Return the shares of bounds after the change, in this order."""
    sums = dict.fromkeys(order, 0.0)
    for each in change.by_op_class if change else ():
        shares = {"launch": 1.0} if each.op_class in _HOST else bounds.get(each.op_class, bounds[""])
        for bound, share in shares.items():
            sums[bound] = sums.get(bound, 0.0) + share * max(each.after_ns, 0)
    whole = sum(sums.values())
    return {bound: time / whole for bound, time in sums.items() if time} if whole else {}


def _bounds_by_class(analysis: Analysis) -> dict[str, Shares]:
    """Return the shares of bounds in each class of ops; those of all work are under ""."""
    work = analysis.work[(analysis.work["step"] >= 0).to_numpy()]
    families = work["family"].astype(str)
    named = families.where(families != "", "other")
    bound = work["own_bound"].astype(str).replace("", "unknown")
    sums = work["busy_ns"].astype(float).groupby([named, bound]).sum().unstack(fill_value=0)
    classes = {str(name): _shares(row) for name, row in sums.iterrows()}
    return {"": _shares(sums.sum()), "memcpy": {"transfer": 1.0}, "memset": {"memory": 1.0}, **classes}


def _shares(sums: "pd.Series[float]") -> Shares:
    whole = float(sums.sum()) or 1.0
    return {str(name): float(value) / whole for name, value in sums.items() if value}


def longest_us(drawn: Sequence[Bar]) -> float:
    """Return the end of the axis of the bars in µs."""
    return max((bar.latency_us.high for bar in drawn), default=1.0)
