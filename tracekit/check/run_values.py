"""The values of one or more runs that a check compares, from traces or from a baseline's file."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import analyze, source_of
from tracekit.analyzers.check import (
    NUMBER,
    BudgetLine,
    Check,
    CounterChange,
    Culprit,
    RunTimes,
    TimeChange,
    Values,
    counter_values,
    layer_and_op,
    new_place,
    place_of_counter,
    place_of_main_part,
    run_times,
)
from tracekit.analyzers.compare import StepSummary, summarize
from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import cache, is_url, reading, shown
from tracekit.reports.check import budget_change, counter_change, time_said
from tracekit.reports.compare import causes
from tracekit.run import RUN, TRACE

Fingerprint = dict[str, str | int]

_CLOCKS = ("sm_clock_mhz", "memory_clock_mhz")
_CLOCK_DRIFT = 0.03
"""Clocks count as equal within this fraction."""
_SETTINGS = ("model", "workload", "batch_size", "seq_len", "new_tokens", "dtype", "attention", "weights")
_VERSIONS = ("torch", "transformers", "cuda")
WORK = ("model", "workload", "batch_size", "seq_len", "new_tokens", "weights")
"""Entries on which counters depend too."""
ENTRIES = ("kind", "device", "gpu", "driver", *_CLOCKS, *_SETTINGS, *_VERSIONS, "tracekit", "host_op_us")
"""Every entry that a fingerprint may have."""


def fingerprint(analysis: Analysis) -> Fingerprint:
    """Return what the trace records about the device, the software and the settings of a run."""
    source, capture = analysis.source, analysis.source.capture
    known: Fingerprint = {
        "kind": source.kind,
        "device": source.device_name,
        "gpu": source.gpu.id if source.gpu else "",
        "dtype": source.precision,
    }
    if capture is None:
        return {name: value for name, value in known.items() if value}
    known |= {name: getattr(capture, name) for name in (*_SETTINGS, "driver", *_CLOCKS)}
    known |= {name: capture.versions.get(name, "").partition("+")[0] for name in _VERSIONS}
    if source.kind == "modelled":
        known |= {"tracekit": capture.version, "host_op_us": f"{capture.host_op_us:.3g}"}
        known.pop("device")
    return {name: value for name, value in known.items() if value}


def unlike(
    before: Mapping[str, str | int], after: Mapping[str, str | int], accepted: Collection[str]
) -> dict[str, str]:
    """Return the entries in which two fingerprints differ, each as "A and B".

    An entry that only one of them has does not count as a difference.
    """
    both = [name for name in before if name in after and name not in accepted]
    return {name: f"{before[name]} and {after[name]}" for name in both if not _alike(name, before[name], after[name])}


def unknown(before: Mapping[str, str | int], after: Mapping[str, str | int]) -> list[str]:
    """Return the entries that only one of two fingerprints has."""
    return sorted(before.keys() ^ after.keys())


def _alike(name: str, before: str | int, after: str | int) -> bool:
    if name in _CLOCKS and isinstance(before, int) and isinstance(after, int):
        return abs(after - before) <= _CLOCK_DRIFT * before
    return before == after


@dataclass(frozen=True)
class Recorded:
    """One or more runs of the same thing."""

    name: str
    fingerprint: Fingerprint
    runs: tuple[RunTimes, ...]
    counters: Values
    places: pd.DataFrame
    step: StepSummary
    """The mean step of the run of median length."""
    trace: str | Path | None = None
    """The trace of that run; None for a baseline's file or standard input."""

    @property
    def kind(self) -> str:
        return str(self.fingerprint.get("kind", ""))


def recorded(paths: Sequence[str | Path], *, use_cache: bool = True) -> Recorded:
    """Read one or more runs. Raises InputError if they are not runs of the same thing."""
    if not paths:
        raise InputError("No run is named.", "A check and a baseline need one.", "Name a run's folder or a trace.")
    _check_distinct(paths)
    analyses = [analyzed(path, use_cache=use_cache) for path in paths]
    first = fingerprint(analyses[0])
    for path, analysis in zip(paths[1:], analyses[1:], strict=True):
        other = unlike(first, fingerprint(analysis), ())
        if other:
            what = ", ".join(f"{name} {pair}" for name, pair in other.items())
            raise InputError(
                f"{path} is not another run of {paths[0]}.",
                f"They differ: {what}.",
                "Name runs of the same settings on the same machine.",
            )
    middle = sorted(range(len(analyses)), key=lambda at: _latency_ns(analyses[at]))[len(analyses) // 2]
    return Recorded(
        name=_name(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""),
        fingerprint=first,
        runs=tuple(map(run_times, analyses)),
        counters=counter_values([analysis.counts for analysis in analyses]),
        places=analyses[middle].places,
        step=summarize(analyses[middle]),
        trace=None if str(paths[middle]) == "-" else paths[middle],
    )


def _check_distinct(paths: Sequence[str | Path]) -> None:
    """Raise InputError if a run is named twice, which would make intervals narrower than they are."""
    known: set[str] = set()
    for path in paths:
        place = str(path) if str(path) == "-" or is_url(str(path)) else str(Path(path).resolve())
        if place in known:
            raise InputError(
                f"{path} is named twice.", "A run counts once, or noise seems smaller.", "Name each run once."
            )
        known.add(place)


def analyzed(path: str | Path, *, use_cache: bool = True) -> Analysis:
    """Analyze a trace without recommendations, which take most of the time."""
    return analyze(cache.load(path) if use_cache else reading.load(path))


def _latency_ns(analysis: Analysis) -> float:
    timed = analysis.latency.unprofiled
    return timed.median_us * 1e3 if timed else median(analysis.timeline.steps["wall_ns"])


def _name(run: str | Path) -> str:
    path = Path(shown(str(run)) if is_url(str(run)) else run)
    in_run = path.name == TRACE and (path.parent / RUN).exists()
    return path.parent.name if in_run else path.name or str(path)


_PLACED = ("synchronisations", "scalar-reads", "graph-breaks", "compilations")
_MOST = 10


def culprits(verdict: Check, before: Recorded, after: Recorded) -> tuple[Culprit, ...]:
    """Return the culprit of each regression: first of the step, then of counters, parts and budgets."""
    named = [
        *(_time_culprit(change, verdict, before, after) for change in verdict.slower),
        *(
            _counter_culprit(each, before, after)
            for each in verdict.counters
            if each.decides and each.outcome == "regressed"
        ),
        *(_budget_culprit(line) for line in verdict.budgets if line.outcome == "regressed"),
    ][:_MOST]
    return tuple(_Source(after).placed(culprit) for culprit in named)


def _time_culprit(change: TimeChange, verdict: Check, before: Recorded, after: Recorded) -> Culprit:
    sentence = time_said(change)
    if change.kind == "latency":
        if verdict.comparison is None:
            return Culprit("latency", sentence)
        layer, op = place_of_main_part(verdict.comparison, before.step, after.step)
        return Culprit("latency", sentence, layer, op, causes(verdict.comparison))
    if change.kind == "layer":
        layer, op = layer_and_op(before.step, after.step, layer=change.name)
        return Culprit(f"layer {change.name}", sentence, layer, op)
    return Culprit(f"{change.kind} {change.name}", sentence, op=change.name if change.kind == "op" else "")


def _counter_culprit(change: CounterChange, before: Recorded, after: Recorded) -> Culprit:
    sentence = counter_change(change)
    if change.name in _PLACED:
        layer, function, location = new_place(change.name, before.places, after.places)
        return Culprit(f"counter {change.name}", sentence, layer, location=location, function=function)
    layer, op = place_of_counter(change.name, before.step, after.step)
    return Culprit(f"counter {change.name}", sentence, layer, op)


def _budget_culprit(line: BudgetLine) -> Culprit:
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
