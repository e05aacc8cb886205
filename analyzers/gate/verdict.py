"""The values of a check: verdicts on times, counters and budgets."""

from dataclasses import dataclass, field
from typing import Literal

from tracekit.analyzers.comparison.comparison import Comparison

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
