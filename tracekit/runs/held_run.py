"""Whether a folder may take a run: one that holds a run of something else is refused."""

import json
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.progress import Say
from tracekit.capture.settings import Settings
from tracekit.runs.folders import RUN, TRACE

_IDENTITY = ("model", "workload", "gpu", "device")
"""Settings that make a run another one, not the same with other parameters."""
_PARAMETERS = ("batch_size", "seq_len", "new_tokens", "dtype", "attention", "weights")


def check_folder(settings: Settings, force: bool, say: Say) -> None:
    """Raise TracekitError when the folder holds a run of another model, workload or GPU; say what else is replaced."""
    held = _held(settings.folder)
    if held is None or force:
        return
    stored, asked = held.get("settings"), settings.as_dict()
    if not isinstance(stored, dict):
        raise _refused(settings.folder, _described(held))
    if any(stored.get(name, asked[name]) != asked[name] for name in _IDENTITY):
        raise _refused(settings.folder, f"a run of {_described(held)}")
    changed = [f"{name} {stored[name]}" for name in _PARAMETERS if stored.get(name, asked[name]) != asked[name]]
    if changed:
        say(f"replacing the run in {settings.folder} ({', '.join(changed)})")


def check_script_folder(script: Path, folder: Path, force: bool) -> None:
    """Raise TracekitError when the folder holds anything but a run of this script."""
    held = _held(folder)
    if held is not None and not force and held.get("script") != script.name:
        raise _refused(folder, f"a run of {_described(held)}")


def _held(folder: Path) -> dict[str, Any] | None:
    """What run.json in the folder says; empty when there is only a trace, None when there is neither."""
    path = folder / RUN
    if not path.is_file():
        return {} if (folder / TRACE).exists() else None
    try:
        held = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def _described(held: dict[str, Any]) -> str:
    settings = held.get("settings")
    if isinstance(settings, dict):
        words = [settings.get("name") or settings.get("model"), settings.get("workload"), settings.get("gpu")]
        return " ".join(str(word) for word in words if word)
    return str(held.get("script") or "something that is not known")


def _refused(folder: Path, what: str) -> TracekitError:
    return TracekitError(
        f"{folder} holds {what}.",
        "It would be overwritten.",
        "Name another folder with -o, or add --force to replace it.",
    )
