"""Finds the culprits of a regression: layer, op, cause, and the line of code if stacks were recorded."""

import numpy as np

from tracekit.analyzers.attribute import source_of
from tracekit.analyzers.check import (
    NUMBER,
    BudgetLine,
    Check,
    CounterChange,
    Culprit,
    TimeChange,
    behind_counter,
    layer_and_op,
    new_place,
    of_main_part,
)
from tracekit.analyzers.trace import cache
from tracekit.check.run_values import Recorded, analyzed
from tracekit.reports.check import budget_change, counter_change, time_said
from tracekit.reports.compare import causes

_PLACED = ("synchronisations", "scalar-reads", "graph-breaks", "compilations")
_MOST = 10


def culprits(verdict: Check, before: Recorded, after: Recorded) -> tuple[Culprit, ...]:
    """Return the culprit of each regression: first of the step, then of counters, parts and budgets."""
    named = [
        *(_of_time(change, verdict, before, after) for change in verdict.slower),
        *(
            _of_counter(each, before, after)
            for each in verdict.counters
            if each.decides and each.outcome == "regressed"
        ),
        *(_of_budget(line) for line in verdict.budgets if line.outcome == "regressed"),
    ][:_MOST]
    return tuple(_Source(after).placed(culprit) for culprit in named)


def _of_time(change: TimeChange, verdict: Check, before: Recorded, after: Recorded) -> Culprit:
    sentence = time_said(change)
    if change.kind == "latency":
        if verdict.comparison is None:
            return Culprit("latency", sentence)
        layer, op = of_main_part(verdict.comparison, before.step, after.step)
        return Culprit("latency", sentence, layer, op, causes(verdict.comparison))
    if change.kind == "layer":
        layer, op = layer_and_op(before.step, after.step, layer=change.name)
        return Culprit(f"layer {change.name}", sentence, layer, op)
    return Culprit(f"{change.kind} {change.name}", sentence, op=change.name if change.kind == "op" else "")


def _of_counter(change: CounterChange, before: Recorded, after: Recorded) -> Culprit:
    sentence = counter_change(change)
    if change.name in _PLACED:
        layer, function, location = new_place(change.name, before.places, after.places)
        return Culprit(f"counter {change.name}", sentence, layer, location=location, function=function)
    layer, op = behind_counter(change.name, before.step, after.step)
    return Culprit(f"counter {change.name}", sentence, layer, op)


def _of_budget(line: BudgetLine) -> Culprit:
    kind, _, name = line.name.partition(" ")
    return Culprit(f"budget {line.name}", budget_change(line), name if kind == "layer" else "")


class _Source:
    """Finds the lines of code of a run's layers and ops."""

    def __init__(self, run: Recorded) -> None:
        self._run = run

    def placed(self, culprit: Culprit) -> Culprit:
        """Return the culprit with the function that launched its work, if the trace names one."""
        if culprit.location or not culprit.layer or self._run.trace is None:
            return culprit
        analysis = analyzed(self._run.trace)
        paths = [(path, NUMBER.sub(".*", path)) for path in analysis.layers["path"]]
        of_layer = [culprit.layer in names for names in paths]
        work = analysis.work
        rows = work["layer"].isin(np.flatnonzero(of_layer)) & (work["op"] >= 0)
        if culprit.op:
            named = rows & (work["op_name"].astype(object) == culprit.op)
            rows = named if named.any() else rows
        if not rows.any():
            return culprit
        host = cache.load(self._run.trace).host
        functions, locations = source_of(host, work.loc[rows, "op"].to_numpy(dtype=np.int64)[:1])
        return _with_source(culprit, functions[0], locations[0])


def _with_source(culprit: Culprit, function: str, location: str) -> Culprit:
    return Culprit(
        culprit.what, culprit.change, culprit.layer, culprit.op, culprit.cause, location=location, function=function
    )
