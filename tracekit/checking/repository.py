"""The repository around a check: its commit, and the files in a trace's stacks."""

import re
import subprocess
from pathlib import Path, PurePosixPath

from tracekit.analyzers.gate.verdict import Culprit

_SECONDS = 10
_LOCATION = re.compile(r"(?P<path>.+):(?P<line>\d+)")


def commit_of(folder: Path) -> str:
    """Return the short hash of the commit that is checked out, with "+" if files differ from it; "" without Git."""
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    return commit + ("+" if commit and _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


class Files:
    """Finds the file in the repository for a path in a stack of another machine."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def placed(self, culprit: Culprit) -> tuple[str, int] | None:
        """Return the culprit's file, relative to the repository, and its line; None if there is no such file."""
        stated = _LOCATION.fullmatch(culprit.location)
        if stated is None:
            return None
        parts = [
            part for part in PurePosixPath(stated["path"].replace("\\", "/")).parts if part not in ("/", "..", ".")
        ]
        for first in range(len(parts)):
            file = self._root.joinpath(*parts[first:])
            if file.is_file() and file.resolve().is_relative_to(self._root):
                return PurePosixPath(*parts[first:]).as_posix(), int(stated["line"])
        return None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
