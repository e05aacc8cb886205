"""Saves, lists and shows the baselines of `tracekit check`."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from tracekit.analyzers.check import Check, HistoryPoint, RunTimes, Values
from tracekit.analyzers.core import InputError, TracekitError, UnknownNameError, limits
from tracekit.check import baseline_file
from tracekit.check.baseline_file import names_in, path_of
from tracekit.check.checking import Options, folder_of
from tracekit.check.options import commit_of, configuration
from tracekit.check.run_values import Recorded, recorded, unlike
from tracekit.reports.check import described, fully_described
from tracekit.reports.words import quantity


def save(name: str, runs: Sequence[str | Path], options: Options, *, force: bool = False) -> str:
    """Save runs as a baseline, and return a message. Without `force`, a baseline of something else is not replaced."""
    settings, root = configuration()
    folder = folder_of(options, settings, root)
    baseline_file.path_of(name, folder)  # a bad name is refused before any trace is read
    measured = recorded(runs, use_cache=options.use_cache)
    if not force:
        _check_alike(name, measured, folder)
    commit = commit_of(root)
    path = baseline_file.save(measured, name, folder, commit)
    record_baseline(measured, name, folder, commit)
    several = f", {len(measured.runs)} runs" if len(measured.runs) > 1 else ""
    return f"Saved {name} ({quantity(path.stat().st_size, 'B')}{several}): {path}\n"


def listed(options: Options) -> str:
    """Return one line for each baseline."""
    folder = folder_of(options, *configuration())
    names = baseline_file.names_in(folder)
    if not names:
        return f"There are no baselines in {folder}. Make one with: tracekit check RUN --save NAME.\n"
    return "".join(_line(name, folder) for name in names)


def _line(name: str, folder: Path) -> str:
    try:
        held = baseline_file.read(name, folder)
    except TracekitError as error:
        return f"{name}: {error.what} {error.why}\n"
    return described(name, held.saved, held.commit, held.fingerprint)


def _check_alike(name: str, measured: Recorded, folder: Path) -> None:
    """Raise InputError if a baseline of this name exists that no check could compare with the runs."""
    try:
        held = baseline_file.read(name, folder)
    except TracekitError:  # there is no such baseline, or it is damaged
        return
    differing = unlike(held.fingerprint, measured.fingerprint, ())
    if differing:
        pairs = ", ".join(f"{entry.replace('_', ' ')} {pair}" for entry, pair in differing.items())
        raise InputError(
            f"The baseline {name} belongs to other runs.",
            f"They differ: {pairs} (saved and new).",
            "Save under another name, or replace it with --force.",
        )


def shown(name: str, options: Options) -> str:
    """Return the text of a baseline for people."""
    folder = folder_of(options, *configuration())
    held = baseline_file.read(name, folder)
    values = {counter: tuple(each) for counter, each in held.counters.items()}
    return described(held.name, held.saved, held.commit, held.fingerprint) + fully_described(
        held.fingerprint, values, held.runs
    )


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
    return limits.decoded(path, partial(_points, path), "Check its permissions.")


def _points(path: Path, data: bytes) -> list[HistoryPoint]:
    points = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            points.append(msgspec.json.decode(line, type=HistoryPoint))
        except limits.DAMAGE as error:
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
