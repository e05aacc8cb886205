"""What stands beside code in TOML: constants with their evidence (constants.toml), and facts to look up (facts.toml).

A section is named as the file that reads it.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.analyzers.core.values import Interval, Outcomes


def outcomes(file: str) -> dict[str, Outcomes]:
    """Return the constants of a source file (its `__file__`) that differ by scenario, by name.

    The rows are those of the section of constants.toml that is named as the file. Each has worst, expected and best,
    a unit, a source, and the number of rows that it is known from (0: assumed, or published).
    Raises ValueError if an expected value is not between the two others.
    """
    return {name: _outcomes(row) for name, row in _section(file).items() if "worst" in row}


def _outcomes(row: Mapping[str, Any]) -> Outcomes:
    worst, expected, best = row["worst"], row["expected"], row["best"]
    between = Interval(min(worst, best), expected, max(worst, best))  # raises if it is not
    return Outcomes(worst, between.expected, best)


def intervals(file: str) -> dict[str, Interval]:
    """Return those that have a low and a high end, of which 80 % of measurements are inside."""
    rows = {name: row for name, row in _section(file).items() if "low" in row}
    return {name: Interval(row["low"], row["expected"], row["high"]) for name, row in rows.items()}


def numbers(file: str) -> dict[str, float]:
    """Return those that are a single value."""
    return {name: row["value"] for name, row in _section(file).items() if "value" in row}


def facts(file: str) -> dict[str, Any]:
    """Return what a source file (its `__file__`) looks up: the section of `facts.toml` that is named as the file."""
    return _section(file, "facts.toml")


def version(text: str) -> tuple[int, int]:
    """Return the two numbers of a version, such as a compute capability: "9.0" is (9, 0)."""
    major, minor = text.split(".")
    return int(major), int(minor)


def _section(file: str, beside: str = "constants.toml") -> dict[str, Any]:
    path = Path(file)
    section: dict[str, Any] = _table(path.with_name(beside))[path.stem]
    return section


@cache
def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
