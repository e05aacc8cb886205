"""The history of a baseline: one line of JSON for each saved baseline and each recorded check."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec

from tracekit.analyzers.errors import InputError, UnknownNameError, reading
from tracekit.analyzers.gate.counters import Values
from tracekit.analyzers.gate.history_point import HistoryPoint
from tracekit.analyzers.gate.run_times import RunTimes
from tracekit.analyzers.gate.verdict import Check
from tracekit.checking.baseline_file import names_in, path_of
from tracekit.checking.check import Options, folder_of
from tracekit.checking.configuration import configuration
from tracekit.checking.repository import commit_of
from tracekit.checking.run_values import Recorded


def record_baseline(measured: Recorded, name: str, folder: Path, commit: str) -> Path:
    """Add a saved baseline to the history of its name, and return the history's file."""
    return _append(name, folder, _point("baseline", commit, measured.runs, measured.counters))


def check_recordable(name: str, options: Options) -> None:
    """Raise InputError if there is no baseline of this name, to whose history a check could be added."""
    names = names_in(folder_of(options, *configuration()))
    if name not in names:
        raise InputError(
            f"The check cannot be recorded: {name!r} is not a baseline.",
            f"Baselines: {', '.join(names) or 'none'}.",
            "Name one of them with --against, or leave --record out.",
        )


def record_check(verdict: Check, name: str, options: Options) -> Path:
    """Add a check to the history of its baseline, and return the history's file."""
    settings, root = configuration()
    latency = verdict.latency
    after = latency.after_ns / 1e3 if latency else 0.0
    if latency is None and verdict.comparison is not None:
        after = verdict.comparison.b.latency_ns / 1e3
    ratio = latency.ratio if latency else None
    ends = (
        [after * end / ratio.value for end in (ratio.low, ratio.high)] if ratio and ratio.high < 1e3 else [after, after]
    )
    point = HistoryPoint(
        when=_now(),
        commit=commit_of(root),
        what=verdict.outcome,
        latency_us=after,
        low_us=ends[0],
        high_us=ends[1],
        counters={change.name: change.after for change in verdict.counters},
    )
    return _append(name, folder_of(options, settings, root), point)


def read_history(name: str, folder: Path) -> list[HistoryPoint]:
    """Return the history of a baseline. Raises UnknownNameError if there is none, InputError for a damaged file."""
    path = _file(name, folder)
    if not path.is_file():
        raise UnknownNameError(
            f"There is no history of {name!r} in {folder}.",
            "Saving a baseline begins one, and checks with --record add to it.",
            f"Begin with: tracekit check RUN --save {name}.",
        )
    with reading(f"{path} cannot be read.", "Check its permissions."):
        lines = path.read_bytes().splitlines()
    points = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            points.append(msgspec.json.decode(line, type=HistoryPoint))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = f"Line {number} is not an entry of a history: {error}."
            raise InputError(f"{path} cannot be read.", why, "Remove that line; the others remain valid.") from error
    return points


def _point(what: str, commit: str, runs: Sequence[RunTimes], counters: Values) -> HistoryPoint:
    timed = all(run.unprofiled for run in runs)
    times = [run.latencies_ns(timed=timed) / 1e3 for run in runs]
    centers = [float(median(each)) for each in times]
    several = centers if len(centers) > 1 else times[0].tolist()
    ordered = sorted(several)
    edge = len(ordered) // 10 if len(centers) == 1 else 0
    return HistoryPoint(
        when=_now(),
        commit=commit,
        what=what,
        latency_us=float(median(centers)),
        low_us=ordered[edge],
        high_us=ordered[-1 - edge],
        counters={name: values[len(values) // 2] for name, values in counters.items()},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _file(name: str, folder: Path) -> Path:
    return path_of(name, folder).with_suffix(".history.jsonl")


def _append(name: str, folder: Path, point: HistoryPoint) -> Path:
    """Append one line in a single write, so that two checks at once leave two lines."""
    path = _file(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        os.write(file.fileno(), msgspec.json.encode(point) + b"\n")
    return path
