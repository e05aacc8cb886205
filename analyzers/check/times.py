"""Compares the times of a run with those of its baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Meta, Struct

from tracekit.analyzers.attribute import in_steps
from tracekit.analyzers.check import ratios
from tracekit.analyzers.check.verdict import Basis, Outcome, Ratio, TimeChange
from tracekit.analyzers.compare import devices_of
from tracekit.analyzers.core import Amount, Floats
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Latency

Times = Annotated[list[Amount], Meta(min_length=1)]
Parts = dict[str, dict[str, Times]]
"""Kind (layer, op, phase) -> name -> own durations in ns, one per step."""

_NORMAL = NormalDist()
_MOST_LATENCIES = 50


class RunTimes(Struct, frozen=True, kw_only=True):
    """Times of one run. A run is one process, whose steps do not show how processes differ."""

    unprofiled: Latency | None
    """Latency without a profiler (timed or simulated); None: not timed."""
    steps_ns: Times
    """Wall time of each step in the trace."""
    parts: Parts

    def latencies_ns(self, *, timed: bool) -> Floats:
        """Return the latencies of steps: with `timed`, those without the profiler (from percentiles); else those of the
        trace."""
        if not timed or self.unprofiled is None:
            return np.array(self.steps_ns, dtype=float)
        latency, size = self.unprofiled, max(1, min(self.unprofiled.samples, _MOST_LATENCIES))
        deviation = math.log(latency.p90_us / latency.p10_us) / (2 * _NORMAL.inv_cdf(0.9))
        ranks = [_NORMAL.inv_cdf((rank + 0.5) / size) for rank in range(size)]
        return latency.median_us * 1e3 * np.exp(deviation * np.array(ranks))


def run_times(analysis: Analysis) -> RunTimes:
    """Return the times of a run. A layer's times are those of its own kernels, without the layers below it."""
    return RunTimes(
        unprofiled=analysis.latency.unprofiled,
        steps_ns=analysis.timeline.steps["wall_ns"].astype(float).tolist(),
        parts=_part_times(analysis),
    )


def _part_times(analysis: Analysis) -> Parts:
    work = analysis.work[in_steps(analysis.work)]
    step = np.maximum(work["step"].to_numpy(), 0)
    paths = np.append(analysis.layers["path"].to_numpy(dtype=object), "")
    names = {
        "layer": paths[np.where(work["layer"] >= 0, work["layer"], len(paths) - 1)],
        "op": work["op_name"].astype(object).to_numpy(),
        "phase": work["phase"].astype(object).to_numpy(),
    }
    size = max(1, len(analysis.timeline.steps))
    duration = work["duration_ns"].to_numpy() / devices_of(analysis)
    return {kind: _changes_by_name(name, step, duration, size) for kind, name in names.items()}


def _changes_by_name(
    name: npt.NDArray[np.object_], step: npt.NDArray[np.int64], duration: Floats, size: int
) -> dict[str, list[float]]:
    codes, distinct = pd.factorize(name)
    times = np.bincount(codes * size + step, weights=duration, minlength=len(distinct) * size).reshape(-1, size)
    return {str(each): row.tolist() for each, row in zip(distinct, times.round(1), strict=True) if each}


Runs = Sequence[RunTimes]


@dataclass(frozen=True)
class Rules:
    """The rules by which times are judged."""

    level: float = 0.01
    """Largest probability of a false alarm over all comparisons: half for the latency, a quarter for layers and ops, a
    quarter for phases."""
    margin: float = 0.01
    """Smallest relative change of a time that matters."""
    run_spread: float = 0.05
    """Assumed relative standard deviation between runs, if there are too few runs to measure it."""
    least_share: float = 0.01
    """Parts with less than this share of the step's work are not judged."""


def basis_of(before: Runs, after: Runs, *, modelled: bool) -> Basis:
    """Return the kind of repeat that intervals are based on."""
    if modelled:
        return "modelled"
    return "runs" if len(before) + len(after) - 2 >= ratios.FEWEST_DF else "steps"


def compare_times(before: Runs, after: Runs, basis: Basis, rules: Rules) -> tuple[TimeChange, ...]:
    """Return the change of the latency, then those of the parts that both sides have, largest first."""
    latency = _change("latency", "", *_latencies(before, after), basis, rules, (len(before), len(after)))
    return (latency, *sorted(_parts(before, after, basis, rules), key=lambda change: -abs(change.change_ns)))


def latency_in_turn(blocks: Sequence[tuple[float, float]], rules: Rules) -> TimeChange:
    """Return the change of a latency that was timed in alternating blocks: (before, after) in µs of each."""
    ratio = ratios.paired(blocks, rules.level / 2)
    before, after = (float(median(side)) * 1e3 for side in zip(*blocks, strict=True))
    return TimeChange("latency", "", before, after, ratio, ratio.outcome(rules.margin))


def _latencies(before: Runs, after: Runs) -> tuple[list[Floats], list[Floats]]:
    """Return the latencies of each run: without a profiler if all runs were timed so, else those of the traced
    steps."""
    timed = all(run.unprofiled for run in (*before, *after))
    of_before, of_after = ([run.latencies_ns(timed=timed) for run in side] for side in (before, after))
    return of_before, of_after


def _change(
    kind: str, name: str, before: list[Floats], after: list[Floats], basis: Basis, rules: Rules, runs: tuple[int, int]
) -> TimeChange:
    ratio = _ratios([before], [after], basis, rules, runs, together=False)[0]
    return _told(kind, name, before, after, ratio, rules)


def _told(kind: str, name: str, before: list[Floats], after: list[Floats], ratio: Ratio, rules: Rules) -> TimeChange:
    times = [float(median([median(run) for run in side])) for side in (before, after)]
    return TimeChange(kind, name, times[0], times[1], ratio, ratio.outcome(rules.margin))  # type: ignore[arg-type]


def _ratios(
    before: list[list[Floats]],
    after: list[list[Floats]],
    basis: Basis,
    rules: Rules,
    runs: tuple[int, int],
    *,
    together: bool,
) -> list[Ratio]:
    level = rules.level / 2
    if basis == "steps":
        columns = [np.log([np.concatenate(row) for row in side]) for side in (before, after)]
        return ratios.ratios_of_steps(columns[0], columns[1], runs, rules.run_spread, level, together=together)
    medians = [np.array([[median(run) for run in row] for row in side]) for side in (before, after)]
    if basis == "modelled":
        return [ratios.exact(*pair) for pair in zip(*(side.mean(axis=1).tolist() for side in medians), strict=True)]
    return ratios.ratios_of_runs(np.log(medians[0]), np.log(medians[1]), level, together=together)


def _parts(before: Runs, after: Runs, basis: Basis, rules: Rules) -> list[TimeChange]:
    """Return the changes of layers and ops, relative to each other, and of phases, each separately like the whole
    step."""
    together = [(kind, name) for kind in ("layer", "op") for name in _shared(kind, before, after, rules.least_share)]
    phases = [("phase", name) for name in _shared("phase", before, after, rules.least_share)]
    half = replace(rules, level=rules.level / 2)
    told = _judged(together, before, after, basis, half, together=basis != "modelled")
    return [*told, *_judged(phases, before, after, basis, half, together=False)]


def _judged(
    names: list[tuple[str, str]], before: Runs, after: Runs, basis: Basis, rules: Rules, *, together: bool
) -> list[TimeChange]:
    if not names:
        return []
    sides = [[[np.array(run.parts[kind][name]) for run in runs] for kind, name in names] for runs in (before, after)]
    ratios = _ratios(sides[0], sides[1], basis, rules, (len(before), len(after)), together=together)
    told = [
        _told(kind, name, before_ns, after_ns, ratio, rules)
        for (kind, name), before_ns, after_ns, ratio in zip(names, *sides, ratios, strict=True)
    ]
    return [_moved_itself(change, rules.margin) for change in told]


def _moved_itself(change: TimeChange, margin: float) -> TimeChange:
    """Return the change, as "pass" if the part's own time did not change and only the other parts' times did."""
    plain = change.after_ns / change.before_ns
    unchanged: dict[Outcome, bool] = {"regressed": plain <= 1 + margin, "improved": plain >= 1 - margin}
    return replace(change, outcome="pass") if unchanged.get(change.outcome) else change


def _shared(kind: str, before: Runs, after: Runs, least_share: float) -> list[str]:
    """Return the parts that take time in every step of every run, and a relevant share in at least one run."""
    runs = (*before, *after)
    names = set.intersection(*(set(run.parts.get(kind, {})) for run in runs))
    total = max(sum(median(times) for times in run.parts.get(kind, {}).values()) for run in runs)
    return sorted(
        name
        for name in names
        if all(min(run.parts[kind][name]) > 0 for run in runs)
        and max(median(run.parts[kind][name]) for run in runs) >= least_share * total
    )
