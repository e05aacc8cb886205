"""The file in which a run's folder keeps what was measured of optimizations."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers.remote import is_url
from tracekit.analyzers.verification import Verification
from tracekit.reports.untrusted import escaped_json
from tracekit.runs.folders import TRACE, VERIFY

_NO_MATTER = ("output", "steps")
"""Settings that change no measurement."""


def to_json(found: Verification) -> str:
    return escaped_json(msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode()) + "\n"


def joined(earlier: Verification | None, found: Verification) -> Verification:
    """What was found, after what was measured earlier of other optimizations, if that was done in the same way."""
    if earlier is None or not _comparable(earlier, found):
        return found
    anew = {each.id for each in found.results}
    return replace(found, results=(*(each for each in earlier.results if each.id not in anew), *found.results))


def _comparable(one: Verification, other: Verification) -> bool:
    """The same run on the same device with the same versions. A package that only one of them had changes nothing."""
    both = one.versions.keys() & other.versions.keys()
    return _run_of(one) == _run_of(other) and all(one.versions[name] == other.versions[name] for name in both)


def _run_of(found: Verification) -> tuple[Any, ...]:
    settings = {name: value for name, value in found.settings.items() if name not in _NO_MATTER}
    return found.tracekit, found.device_name, found.seed, settings


def read(path: Path) -> Verification:
    """Raises InputError when the file is not one of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Verification)
    except msgspec.DecodeError as error:
        raise InputError(
            f"{path} cannot be read.", str(error), "Remove it, and measure again with: tracekit verify RUN."
        ) from error


def verified_beside(trace: str | Path) -> Verification | None:
    """What was measured of the run whose folder, or trace, this is; None: nothing."""
    if str(trace) == "-" or is_url(str(trace)):
        return None
    path = Path(trace)
    folder = path if path.is_dir() else path.parent if path.name == TRACE else None
    return read(folder / VERIFY) if folder and (folder / VERIFY).is_file() else None
