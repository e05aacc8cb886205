"""Limits on times, memory and counters that hold independently of the baseline."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd
from msgspec import Struct

from tracekit.analyzers.check import ratios
from tracekit.analyzers.check.times import Rules, RunTimes
from tracekit.analyzers.check.verdict import Basis, BudgetLine, Outcome, Ratio, Values
from tracekit.analyzers.compare import Comparison, StepSummary
from tracekit.analyzers.core import Floats
from tracekit.analyzers.results import FAMILY_COUNTER

_ENOUGH_RUNS = 3
"""Number of runs from which on their spread is measured rather than assumed."""


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one step. Layers are named by path, with * for any part of it; their times include layers below."""

    latency_ms: float | None = None
    peak_memory_gb: float | None = None
    layers_ms: dict[str, float] = {}
    ops_ms: dict[str, float] = {}
    phases_ms: dict[str, float] = {}
    counters: dict[str, float] = {}

    @property
    def empty(self) -> bool:
        return self == Budget()


def judged(
    budget: Budget, runs: Sequence[RunTimes], counters: Values, basis: Basis | None, rules: Rules
) -> tuple[BudgetLine, ...]:
    """Return each limit beside the runs' value. Without a basis, times are left out."""
    times = [_line(name, most, runs_ns, basis, rules) for name, most, runs_ns in _times(budget, runs)] if basis else []
    limits = {**budget.counters}
    if budget.peak_memory_gb is not None:
        limits["peak-memory"] = budget.peak_memory_gb * 1e9
    return (*times, *(_counted(name, most, counters) for name, most in limits.items()))


def _times(budget: Budget, runs: Sequence[RunTimes]) -> Iterator[tuple[str, float, list[Floats]]]:
    if budget.latency_ms is not None:
        yield "latency", budget.latency_ms * 1e6, [run.latencies_ns(timed=True) for run in runs]
    for kind, limits in (("layer", budget.layers_ms), ("op", budget.ops_ms), ("phase", budget.phases_ms)):
        for pattern, most in limits.items():
            names = _matching(kind, pattern, runs)
            if not names:
                yield f"{kind} {pattern}", most * 1e6, []
            for name, below in names.items():
                yield f"{kind} {name}", most * 1e6, [_sum(run.parts[kind], below) for run in runs]


def _matching(kind: str, pattern: str, runs: Sequence[RunTimes]) -> Mapping[str, list[str]]:
    """Return the names that match a pattern, each with the names whose times it includes."""
    names = sorted(set.union(set(), *(set(run.parts.get(kind, {})) for run in runs)))
    if kind != "layer":
        return {name: [name] for name in names if fnmatchcase(name, pattern)}
    paths = {".".join(parts[:end]) for name in names for parts in [name.split(".")] for end in range(1, len(parts) + 1)}
    wanted = sorted(path for path in paths if _fits(path, pattern))
    return {path: [name for name in names if name == path or name.startswith(f"{path}.")] for path in wanted}


def _fits(path: str, pattern: str) -> bool:
    """Return whether a path matches a pattern, in which * matches one part of a path."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _sum(parts: Mapping[str, list[float]], names: list[str]) -> Floats:
    times: Floats = np.sum([parts[name] for name in names if name in parts], axis=0, dtype=float)
    return np.atleast_1d(times)


def _line(name: str, most: float, runs_ns: list[Floats], basis: Basis | None, rules: Rules) -> BudgetLine:
    if not runs_ns:
        return BudgetLine(name, most, 0.0, "ns", "inconclusive")
    value = float(np.median([np.median(run) for run in runs_ns]))
    if value <= 0 or basis == "modelled":
        ratio = Ratio(value / most, value / most, value / most)
    else:
        several = len(runs_ns) >= _ENOUGH_RUNS
        times = np.array([np.median(run) for run in runs_ns]) if several else np.concatenate(runs_ns)
        spread = 0.0 if several else rules.run_spread
        ratio = ratios.ratio_to_limit(most, np.maximum(times, 1e-3), len(runs_ns), spread, rules.level)
    return BudgetLine(name, most, value, "ns", _outcome(ratio))


def _outcome(ratio: Ratio) -> Outcome:
    return "regressed" if ratio.low > 1 else "pass" if ratio.high <= 1 else "inconclusive"


def _counted(name: str, most: float, counters: Values) -> BudgetLine:
    unit = "B" if name in ("peak-memory", "bytes", "copied-bytes") else ""
    if name not in counters:
        return BudgetLine(name, most, 0.0, unit, "inconclusive")
    value = counters[name][-1]
    return BudgetLine(name, most, value, unit, "pass" if value <= most else "regressed")


NOWHERE = ""
NUMBER = re.compile(r"\.\d+(?=\.|$)")
_MOST_OF_IT = 0.8
"""A layer is named alone if it has at least this fraction of the growth of similar layers."""
_COLUMN = {"flops": "flops", "bytes": "bytes", "kernels": "kernels", "launches": "kernels", "ops": "kernels"}


def layer_and_op(
    before: StepSummary, after: StepSummary, column: str = "ns", layer: str | None = None
) -> tuple[str, str]:
    """Return path and op of the work whose `column` grew most; only work of `layer`, if it is given.

    If layers that differ in a number grew alike, the number becomes *: transformer.h.*.attn. Both are "" if nothing
    grew.
    """
    grown = _counts_by_place(after, column).sub(_counts_by_place(before, column), fill_value=0.0)
    path = grown.index.get_level_values("path").to_numpy(dtype=object)
    pattern = np.array([NUMBER.sub(".*", each) for each in path], dtype=object)
    if layer is None:
        by_pattern = grown.groupby(pattern).sum()
        if by_pattern.empty or not by_pattern.max() > 0:
            return NOWHERE, NOWHERE
        chosen = str(by_pattern.idxmax())
        by_layer = grown[pattern == chosen].groupby("path").sum()
        layer = str(by_layer.idxmax()) if by_layer.max() >= _MOST_OF_IT * by_layer.clip(lower=0).sum() else chosen
    ops = grown[(path == layer) | (pattern == layer)].groupby("op").sum()
    return layer, str(ops.idxmax()) if len(ops) and ops.max() > 0 else NOWHERE


def place_of_main_part(comparison: Comparison, before: StepSummary, after: StepSummary) -> tuple[str, str]:
    """Return layer and op behind a longer step: by time or, if the device waits longer, by launches."""
    grown = comparison.difference.groupby("kind")["change_ns"].sum()
    idle = grown.get("idle", 0.0) > grown.get("busy", 0.0) + grown.get("overlap", 0.0)
    return layer_and_op(before, after, "kernels" if idle else "ns")


def place_of_counter(name: str, before: StepSummary, after: StepSummary) -> tuple[str, str]:
    """Return layer and op of the work that made a counter grow; "" if the counter does not count work."""
    if name.startswith(FAMILY_COUNTER):
        family = name.removeprefix(FAMILY_COUNTER)
        return layer_and_op(_work_of_family(before, family), _work_of_family(after, family), "kernels")
    return layer_and_op(before, after, _COLUMN[name]) if name in _COLUMN else (NOWHERE, NOWHERE)


def new_place(name: str, before: pd.DataFrame, after: pd.DataFrame) -> tuple[str, str, str]:
    """Return layer, function and location of the place (PLACES) at which a counter grew most; "" if it grew nowhere."""
    keys = ["layer", "function"]
    sides = [places[places["counter"] == name] for places in (before, after)]
    counts = [side.groupby(keys)["count"].sum() for side in sides]
    grown = counts[1].sub(counts[0], fill_value=0.0)
    if grown.empty or not grown.max() > 0:
        return NOWHERE, NOWHERE, NOWHERE
    layer, function = map(str, grown.index[int(grown.to_numpy().argmax())])
    there = sides[1][(sides[1]["layer"] == layer) & (sides[1]["function"] == function)]
    return layer, function, str(there.sort_values("count")["location"].iat[-1])


def _counts_by_place(step: StepSummary, column: str) -> pd.Series:
    paths = np.append(step.layers["path"].to_numpy(dtype=object), NOWHERE)
    rows = step.work["layer"].to_numpy()
    path = paths[np.where((rows >= 0) & (rows < len(step.layers)), rows, len(step.layers))]
    work = pd.DataFrame({"path": path, "op": step.work["op"].to_numpy(), "value": step.work[column].to_numpy()})
    return work.groupby(["path", "op"])["value"].sum()


def _work_of_family(step: StepSummary, family: str) -> StepSummary:
    return replace(step, work=step.work[step.work["family"] == family])
