"""The settings of checks: [tool.tracekit.check] in pyproject.toml, or [check] in tracekit.toml."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tracekit.analyzers.counting.count_tables import COUNTER_MEANINGS, FAMILY
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.gate.budgets import Budget
from tracekit.analyzers.gate.times import Rules

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
        if name not in COUNTER_MEANINGS and not name.startswith(FAMILY):
            known = ", ".join(COUNTER_MEANINGS)
            raise InputError(f"{path}: {name!r} is not a counter.", f"Counters are {known}, {FAMILY}FAMILY.", _HINT)
    if not (0 < settings.level < 0.5 and 0 <= settings.margin < 1 and settings.run_spread >= 0):
        why = "level lies between 0 and 0.5, margin between 0 and 1, and run_spread is not negative."
        raise InputError(f"{path}: the section on checks cannot be used.", why, _HINT)
    return settings
