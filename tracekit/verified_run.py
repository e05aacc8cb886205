"""The file in which a run's folder keeps what was measured of optimizations."""

from dataclasses import asdict
from pathlib import Path

import msgspec

from analyzers.errors import InputError
from analyzers.readers.remote import is_url
from analyzers.verified import Verification
from tracekit.folders import TRACE, VERIFY


def to_json(found: Verification) -> str:
    return msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode() + "\n"


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
