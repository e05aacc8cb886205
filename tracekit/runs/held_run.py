"""Refuses to write a run into a folder that contains a run of something else."""

import json
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.progress import Say
from tracekit.capture.settings import Settings
from tracekit.runs.folders import RUN, TRACE

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
    stored, new = existing.get("settings"), settings.as_dict()
    if not isinstance(stored, dict):
        raise _refused(settings.folder, _described(existing))
    if any(stored.get(name, new[name]) != new[name] for name in _IDENTITY):
        raise _refused(settings.folder, f"a run of {_described(existing)}")
    changed = [f"{name} {stored[name]}" for name in _PARAMETERS if stored.get(name, new[name]) != new[name]]
    if changed:
        say(f"replacing the run in {settings.folder} ({', '.join(changed)})")


def check_script_folder(script: Path, folder: Path, force: bool) -> None:
    """Raise TracekitError if the folder contains a run of anything else than this script, unless `force`."""
    existing = _stored_run(folder)
    if existing is not None and not force and existing.get("script") != script.name:
        raise _refused(folder, f"a run of {_described(existing)}")


def check_module_folder(name: str, folder: Path, force: bool) -> None:
    """Raise TracekitError if the folder contains a run of anything else than a module of this class, unless `force`."""
    existing = _stored_run(folder)
    if existing is not None and not force and existing.get("module") != name:
        raise _refused(folder, f"a run of {_described(existing)}")


def _stored_run(folder: Path) -> dict[str, Any] | None:
    """Return the content of run.json in the folder; empty if there is only a trace, None if there is neither."""
    path = folder / RUN
    if not path.is_file():
        return {} if (folder / TRACE).exists() else None
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _described(run: dict[str, Any]) -> str:
    settings = run.get("settings")
    if isinstance(settings, dict):
        words = [settings.get("name") or settings.get("model"), settings.get("workload"), settings.get("gpu")]
        return " ".join(str(word) for word in words if word)
    return str(run.get("script") or run.get("module") or "something unknown")


def _refused(folder: Path, what: str) -> TracekitError:
    return TracekitError(
        f"{folder} contains {what}.",
        "It would be overwritten.",
        "Name another folder with -o, or add --force to replace it.",
    )
