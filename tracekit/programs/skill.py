"""Installs the skill file for coding agents."""

from importlib.resources import files
from pathlib import Path

from tracekit.analyzers.errors import TracekitError
from tracekit.reports.files import check_writable, write_atomically

FILE = "SKILL.md"
_MARK = "name: tracekit\n"


def text() -> str:
    """Return the skill."""
    return (files("tracekit.programs") / "skill.md").read_text("utf-8")


def install(folder: Path, *, force: bool = False) -> Path:
    """Write the skill into `folder`/tracekit, and return its file. Raises TracekitError if another file is there."""
    path = folder / "tracekit" / FILE
    check_writable(path)
    if path.exists() and not force and _MARK not in path.read_text("utf-8", "replace"):
        raise TracekitError(
            f"{path} exists, and is not tracekit's.", "It would be overwritten.", "Add --force to replace it."
        )
    write_atomically(path, text())
    return path
