"""Keeps a run from replacing a run of something else: chooses a folder, or refuses the one that was named."""

from itertools import count
from pathlib import Path

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.run.file import Run, read
from tracekit.run.folder import RUN, TRACE
from tracekit.run.packages import Say
from tracekit.run.settings import Settings

_IDENTITY = ("model", "workload", "gpu", "device")
"""Settings that identify a run. Other settings are its parameters."""
_PARAMETERS = ("batch_size", "seq_len", "new_tokens", "dtype", "attention", "weights")


def check_folder(settings: Settings, force: bool, say: Say) -> None:
    """Raise TracekitError if the folder contains a run of another model, workload or GPU, unless `force`.

    A run with other parameters is replaced, which `say` reports.
    """
    existing = _stored_run(settings.folder)
    if existing is None or force:
        return
    stored, new = existing.settings, settings.as_dict()
    if not stored or any(stored.get(name, new[name]) != new[name] for name in _IDENTITY):
        raise _refused(settings.folder, existing)
    changed = [f"{name} {stored[name]}" for name in _PARAMETERS if stored.get(name, new[name]) != new[name]]
    if changed:
        say(f"replacing the run in {settings.folder} ({', '.join(changed)})")


def check_replaced(run: Run, folder: Path, force: bool) -> None:
    """Raise TracekitError if the folder contains another run than this script, block or module, unless `force`."""
    existing = _stored_run(folder)
    if existing is not None and not force and not _is_same(existing, run):
        raise _refused(folder, existing)


def unused_folder(run: Run, folder: Path) -> Path:
    """Return the folder if it is free or contains this run, else the first such folder among FOLDER-2, FOLDER-3, ..."""
    for number in count(1):
        numbered = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        existing = _stored_run(numbered)
        if existing is None or _is_same(existing, run):
            return numbered
    raise AssertionError


def _is_same(existing: Run, run: Run) -> bool:
    """Return whether both are the same run, so that one may replace the other.

    A script that has changed, or gets other arguments, is another run. A block is named by its code, and so replaces
    what the same script recorded there before.
    """
    if run.block:
        return existing.block and existing.script == run.script
    return not existing.settings and not existing.bench and _identity(existing) == _identity(run)


def _identity(run: Run) -> tuple[object, ...]:
    return run.module, run.script, run.arguments, run.digest, run.block, run.gpu, run.device, run.workload


def _stored_run(folder: Path) -> Run | None:
    """Return the run in the folder; an empty one if it is unknown, None if there is neither run.json nor a trace."""
    if not (folder / RUN).is_file():
        return Run() if (folder / TRACE).exists() else None
    try:
        return read(folder)
    except InputError:
        return Run()


def _refused(folder: Path, existing: Run) -> TracekitError:
    return TracekitError(
        f"{folder} contains a run of {existing.described}.",
        "It would be overwritten.",
        "Name another folder with -o (output=...), or replace it with --force (force=True).",
    )
