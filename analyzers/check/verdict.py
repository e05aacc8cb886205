"""The values of a check: verdicts on times, counters and budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from tracekit.analyzers.compare import Comparison
from tracekit.analyzers.results import COUNTER_MEANINGS, FAMILY_COUNTER

Outcome = Literal["pass", "improved", "regressed", "inconclusive"]
Basis = Literal["runs", "steps", "modelled", "in turn"]


@dataclass(frozen=True)
class Ratio:
    """New time divided by old time. Above 1, the new run is slower."""

    low: float
    value: float
    high: float

    def outcome(self, margin: float) -> Outcome:
        """Return regressed or improved if the interval excludes 1 and the change exceeds the margin.

        Return pass if the interval excludes a slowdown of more than the margin, else inconclusive.
        """
        if self.low > 1 and self.value > 1 + margin:
            return "regressed"
        if self.high < 1 and self.value < 1 - margin:
            return "improved"
        return "pass" if self.high <= 1 + margin else "inconclusive"


@dataclass(frozen=True)
class TimeChange:
    """The time of the step ("latency") or of a layer, op or phase, before and after."""

    kind: Literal["latency", "layer", "op", "phase"]
    name: str
    before_ns: float
    after_ns: float
    ratio: Ratio
    """Ratio of the times. For a part, it is relative to the other parts: the change that all parts share is subtracted.
    """
    outcome: Outcome

    @property
    def change_ns(self) -> float:
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class CounterChange:
    """A counter of a step before and after; constant counters are compared exactly."""

    name: str
    before: float
    after: float
    outcome: Outcome
    decides: bool
    """Whether the outcome counts. It does not for kernels by family and for ignored counters."""
    varies: bool = False
    """Whether the steps of a run differ in it."""

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class BudgetLine:
    """A budget, and the run's value. `unit` is ns, B, or ""."""

    name: str
    most: float
    value: float
    unit: str
    outcome: Outcome


@dataclass(frozen=True)
class Culprit:
    """The culprit of a regression: its layer, op, cause and line of code, as far as they are known."""

    what: str
    """"latency", "layer ...", "counter ..." or "budget ..."."""
    change: str
    layer: str = ""
    op: str = ""
    cause: str = ""
    location: str = ""
    """File and line of the code; "": no stacks were recorded."""
    function: str = ""


@dataclass(frozen=True)
class Check:
    """The verdict on a run, and its evidence."""

    run: str
    baseline: str
    outcome: Outcome
    basis: Basis | None
    """The kind of repeat that the intervals are based on; None if times were not compared."""
    counters_only: bool
    level: float
    """Largest probability with which a run that did not change is called regressed or improved."""
    margin: float
    times: tuple[TimeChange, ...] = ()
    counters: tuple[CounterChange, ...] = ()
    budgets: tuple[BudgetLine, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = field(default=None, repr=False)
    kind: str = "measured"
    """measured, modelled or imported."""

    @property
    def latency(self) -> TimeChange | None:
        """The change of the whole step; None if times were not compared."""
        return next((change for change in self.times if change.kind == "latency"), None)

    @property
    def slower(self) -> tuple[TimeChange, ...]:
        """The times that decide that the run regressed."""
        return slower(self.times)


def slower(times: tuple[TimeChange, ...]) -> tuple[TimeChange, ...]:
    """Return the times that regressed. A part's time does not count if the latency improved, because work moved from
    one layer to another."""
    improved = any(change.kind == "latency" and change.outcome == "improved" for change in times)
    return () if improved else tuple(change for change in times if change.outcome == "regressed")


def overall(
    times: tuple[TimeChange, ...], counters: tuple[CounterChange, ...], budgets: tuple[BudgetLine, ...]
) -> Outcome:
    """Return the overall verdict: regressed if a counter, a budget, the latency or a part regressed.

    Without a regression, the latency decides; without times, the counters do.
    """
    latency = next((change.outcome for change in times if change.kind == "latency"), None)
    exact = [change.outcome for change in counters if change.decides]
    if "regressed" in exact or "regressed" in [line.outcome for line in budgets] or slower(times):
        return "regressed"
    if latency == "inconclusive" or any(line.outcome == "inconclusive" for line in budgets):
        return "inconclusive"
    return "improved" if latency == "improved" or (latency is None and "improved" in exact) else "pass"


Values = dict[str, tuple[float, ...]]
"""Counter -> its value in each step, in rising order: a single value if it is constant."""

_ROUNDING = 1e-9


def counter_values(counts: Sequence[pd.DataFrame]) -> Values:
    """Return the counters of one or more runs."""
    groups = pd.concat(counts).groupby("counter", sort=True)["value"]
    steps = {str(name): tuple(sorted(map(float, values))) for name, values in groups}
    return {name: values if values[0] < values[-1] else values[:1] for name, values in steps.items()}


def compare_counters(
    before: Values, after: Values, tolerances: Mapping[str, float], ignored: Sequence[str]
) -> tuple[CounterChange, ...]:
    """Return the counters of both sides, those that decide first.

    `tolerances` are relative increases that pass, by counter. A counter that only one side has decides nothing, except
    the counter of a family of ops, which is 0 where it is absent.
    """
    names = {*before, *after}
    changes = [
        _change(name, before.get(name, (0.0,)), after.get(name, (0.0,)), tolerances.get(name, 0.0), name not in ignored)
        for name in names
        if (name in before and name in after) or name.startswith(FAMILY_COUNTER)
    ]
    order = [*COUNTER_MEANINGS]
    return tuple(sorted(changes, key=lambda each: (_place(each.name, order), each.name)))


def _place(name: str, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)


def _change(
    name: str, before: tuple[float, ...], after: tuple[float, ...], tolerance: float, wanted: bool
) -> CounterChange:
    """Return the change of a counter. A varying counter has changed if the middle halves of both sides' steps do not
    overlap: a first or last step that does something else hides no change."""
    varies = len(before) > 1 or len(after) > 1
    low, high = _middle_half(before)
    least, most = _middle_half(after)
    outcome: Outcome = "pass"
    if least > high * (1 + tolerance + _ROUNDING):
        outcome = "regressed"
    elif most < low * (1 - tolerance - _ROUNDING):
        outcome = "improved"
    decides = wanted and not name.startswith(FAMILY_COUNTER)
    return CounterChange(name, _typical(before), _typical(after), outcome, decides, varies)


def _middle_half(values: tuple[float, ...]) -> tuple[float, float]:
    """Return the values between which the middle half of the steps lies."""
    cut = len(values) // 4
    return values[cut], values[-1 - cut]


def _typical(values: tuple[float, ...]) -> float:
    return values[len(values) // 2]
