"""Judges whether a run is slower than its baseline: times by intervals over repeats, counters exactly."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.check.budgets import (
        NUMBER,
        Budget,
        judged,
        layer_and_op,
        new_place,
        place_of_counter,
        place_of_main_part,
    )
    from tracekit.analyzers.check.ratios import HistoryPoint, change_points
    from tracekit.analyzers.check.times import (
        Rules,
        RunTimes,
        Times,
        basis_of,
        compare_times,
        latency_in_turn,
        run_times,
    )
    from tracekit.analyzers.check.verdict import (
        Basis,
        BudgetLine,
        Check,
        CounterChange,
        Culprit,
        Outcome,
        Ratio,
        TimeChange,
        Values,
        compare_counters,
        counter_values,
        overall,
    )
else:
    __getattr__ = lazily(__name__, __file__)
