"""Reads and writes verify.json, the measurements of optimizations in a run's folder."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tracekit.analyzers.core import decoded
from tracekit.analyzers.results import Verification
from tracekit.analyzers.trace import is_url
from tracekit.reports.words import escaped_json
from tracekit.run.folder import TRACE, VERIFY

_NO_MATTER = ("output", "steps")
"""Settings that do not affect a measurement."""


def to_json(verification: Verification) -> str:
    return escaped_json(msgspec.json.format(msgspec.json.encode(verification), indent=2).decode()) + "\n"


def joined(earlier: Verification | None, latest: Verification) -> Verification:
    """Return `latest` with the earlier results of other optimizations, if those were measured in the same way."""
    if earlier is None or not _comparable(earlier, latest):
        return latest
    repeated = {each.id for each in latest.results}
    kept = (each for each in earlier.results if each.id not in repeated)
    return replace(latest, results=(*kept, *latest.results))


def _comparable(one: Verification, other: Verification) -> bool:
    """Return whether both are of the same run, on the same device, with the same versions of the packages in both."""
    both = one.versions.keys() & other.versions.keys()
    return _run_of(one) == _run_of(other) and all(one.versions[name] == other.versions[name] for name in both)


def _run_of(verification: Verification) -> tuple[Any, ...]:
    settings = {name: value for name, value in verification.settings.items() if name not in _NO_MATTER}
    return verification.tracekit, verification.device_name, verification.seed, settings


def read_verification(path: Path) -> Verification:
    """Read a verify.json. Raises InputError if it is invalid."""
    hint = "Remove it, and measure again with: tracekit verify RUN."
    return decoded(path, msgspec.json.Decoder(Verification).decode, hint)


def verification_of(trace: str | Path) -> Verification | None:
    """Return the measurements in the run's folder that `trace` is or belongs to; None without any."""
    if str(trace) == "-" or is_url(str(trace)):
        return None
    path = Path(trace)
    folder = path if path.is_dir() else path.parent if path.name == TRACE else None
    return read_verification(folder / VERIFY) if folder and (folder / VERIFY).is_file() else None
