"""The values of one or more runs that a check compares, from traces or from a baseline's file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd

from tracekit.analyzers import cache, readers
from tracekit.analyzers.analysis import analyze
from tracekit.analyzers.comparison.mean_step import StepSummary, summarize
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.gate.counters import Values, counter_values
from tracekit.analyzers.gate.run_times import RunTimes, run_times
from tracekit.analyzers.readers.remote import is_url, shown
from tracekit.analyzers.results import Analysis
from tracekit.checking.fingerprint import Fingerprint, fingerprint, unlike
from tracekit.runs.folders import RUN, TRACE


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
    return analyze(cache.load(path) if use_cache else readers.load(path))


def _latency_ns(analysis: Analysis) -> float:
    timed = analysis.latency.unprofiled
    return timed.median_us * 1e3 if timed else median(analysis.timeline.steps["wall_ns"])


def _name(run: str | Path) -> str:
    path = Path(shown(str(run)) if is_url(str(run)) else run)
    in_run = path.name == TRACE and (path.parent / RUN).exists()
    return path.parent.name if in_run else path.name or str(path)
