"""Saves, lists and shows the baselines of `tracekit check`."""

from collections.abc import Sequence
from pathlib import Path

from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.checking import baseline_file
from tracekit.checking.check import Options, folder_of
from tracekit.checking.configuration import configuration
from tracekit.checking.fingerprint import unlike
from tracekit.checking.history import record_baseline
from tracekit.checking.repository import commit_of
from tracekit.checking.run_values import Recorded, recorded
from tracekit.reports.checking.baseline_text import described, in_full
from tracekit.reports.numbers import quantity


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
    return described(held.name, held.saved, held.commit, held.fingerprint) + in_full(
        held.fingerprint, values, held.runs
    )
