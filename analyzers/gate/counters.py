"""Compares the counters of a run with those of its baseline exactly, because noise does not change them."""

from collections.abc import Mapping, Sequence

import pandas as pd

from tracekit.analyzers.counting.count_tables import COUNTER_MEANINGS, FAMILY
from tracekit.analyzers.gate.verdict import CounterChange, Outcome

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
        if (name in before and name in after) or name.startswith(FAMILY)
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
    decides = wanted and not name.startswith(FAMILY)
    return CounterChange(name, _typical(before), _typical(after), outcome, decides, varies)


def _middle_half(values: tuple[float, ...]) -> tuple[float, float]:
    """Return the values between which the middle half of the steps lies."""
    cut = len(values) // 4
    return values[cut], values[-1 - cut]


def _typical(values: tuple[float, ...]) -> float:
    return values[len(values) // 2]
