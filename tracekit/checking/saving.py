"""Carries out `tracekit baseline`."""

from collections.abc import Sequence
from pathlib import Path

from tracekit.checking import baseline_file
from tracekit.checking.check import Options, folder_of
from tracekit.checking.configuration import configuration
from tracekit.checking.history import record_baseline
from tracekit.checking.recorded import recorded
from tracekit.checking.repository import commit_of
from tracekit.reports.checking.baseline_text import described, in_full
from tracekit.reports.numbers import quantity


def save(name: str, runs: Sequence[str | Path], options: Options) -> str:
    """Save runs as a baseline, and return a message."""
    settings, root = configuration()
    folder = folder_of(options, settings, root)
    baseline_file.path_of(name, folder)  # a bad name is refused before anything is read
    measured = recorded(runs, use_cache=options.use_cache)
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
        return f"There are no baselines in {folder}. Make one with: tracekit baseline save NAME RUN.\n"
    held = [baseline_file.read(name, folder) for name in names]
    return "".join(described(each.name, each.saved, each.commit, each.fingerprint) for each in held)


def shown(name: str, options: Options) -> str:
    """Return the text of a baseline for people."""
    folder = folder_of(options, *configuration())
    held = baseline_file.read(name, folder)
    values = {counter: tuple(each) for counter, each in held.counters.items()}
    return described(held.name, held.saved, held.commit, held.fingerprint) + in_full(
        held.fingerprint, values, held.runs
    )
