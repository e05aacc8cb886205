"""The settings of checks: [tool.tracekit.check] in pyproject.toml, or [check] in tracekit.toml."""

import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from tracekit.analyzers.check import Budget, Culprit, Rules
from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import COUNTER_MEANINGS, FAMILY_COUNTER

_FILES = (("tracekit.toml", ("check",)), ("pyproject.toml", ("tool", "tracekit", "check")))
_HINT = "docs/checking.md lists the keys of the section."


class Configuration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    baselines: str = ".tracekit/baselines"
    """Folder of the baselines, relative to the file that holds the section."""
    level: float = Rules.level
    margin: float = Rules.margin
    run_spread: float = Rules.run_spread
    least_share: float = Rules.least_share
    accept: list[str] = []
    """Entries of the fingerprint that may differ."""
    ignore: list[str] = []
    """Counters that do not affect the verdict."""
    counters: dict[str, float] = {}
    """Allowed relative increases, by counter."""
    budget: Budget = Budget()

    @property
    def rules(self) -> Rules:
        return Rules(self.level, self.margin, self.run_spread, self.least_share)


def configuration(start: Path | None = None) -> tuple[Configuration, Path]:
    """Return the settings of the nearest file above `start` (default: here), and its folder.

    Raises InputError for unknown entries in the section.
    """
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        for name, keys in _FILES:
            section = _section(folder / name, keys)
            if section is not None:
                return _converted(section, folder / name), folder
        if (folder / ".git").exists():
            return Configuration(), folder
    return Configuration(), here


def _section(path: Path, keys: tuple[str, ...]) -> Any:
    """Return the section of a file; None if it has none."""
    if not path.is_file():
        return None
    try:
        held: Any = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read.", f"{error}.", "Correct the file.") from error
    for key in keys:
        if not isinstance(held, dict) or key not in held:
            return None
        held = held[key]
    return held


def _converted(section: Any, path: Path) -> Configuration:
    try:
        settings = msgspec.convert(section, Configuration)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: the section on checks cannot be used.", f"{error}.", _HINT) from error
    for name in (*settings.ignore, *settings.counters, *settings.budget.counters):
        if name not in COUNTER_MEANINGS and not name.startswith(FAMILY_COUNTER):
            known = ", ".join(COUNTER_MEANINGS)
            raise InputError(
                f"{path}: {name!r} is not a counter.", f"Counters are {known}, {FAMILY_COUNTER}FAMILY.", _HINT
            )
    if not (0 < settings.level < 0.5 and 0 <= settings.margin < 1 and settings.run_spread >= 0):
        why = "level lies between 0 and 0.5, margin between 0 and 1, and run_spread is not negative."
        raise InputError(f"{path}: the section on checks cannot be used.", why, _HINT)
    return settings


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
