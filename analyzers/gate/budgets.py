"""Limits on times, memory and counters that hold independently of the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracekit.analyzers.gate import ratios
from tracekit.analyzers.gate.counters import Values
from tracekit.analyzers.gate.run_times import RunTimes
from tracekit.analyzers.gate.times import Rules
from tracekit.analyzers.gate.verdict import Basis, BudgetLine, Outcome, Ratio

Floats = npt.NDArray[np.float64]

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
        ratio = ratios.over(most, np.maximum(times, 1e-3), len(runs_ns), spread, rules.level)
    return BudgetLine(name, most, value, "ns", _outcome(ratio))


def _outcome(ratio: Ratio) -> Outcome:
    return "regressed" if ratio.low > 1 else "pass" if ratio.high <= 1 else "inconclusive"


def _counted(name: str, most: float, counters: Values) -> BudgetLine:
    unit = "B" if name in ("peak-memory", "bytes", "copied-bytes") else ""
    if name not in counters:
        return BudgetLine(name, most, 0.0, unit, "inconclusive")
    value = counters[name][-1]
    return BudgetLine(name, most, value, unit, "pass" if value <= most else "regressed")
