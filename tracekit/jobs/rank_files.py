"""Finds the traces of a job's ranks by a folder, a pattern or a URL, and the numbers of their ranks."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import InputError, MissingPackageError, installing
from tracekit.analyzers.ranks import is_operations
from tracekit.analyzers.trace import RUN_TRACE, is_url, shown

_TRACE = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?\Z|\.(?:sqlite|nsys-rep)\Z")
_NO_TRACE = re.compile(r"\A(?:analysis|run|verify|ranks|annotated|metadata)[\w.-]*\.json\Z")
_RANK = re.compile(r"(?:rank|worker|r)[-_.]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_WILD = re.compile(r"[*?\[]")


def rank_files(where: str | Path | Sequence[str | Path]) -> list[str]:
    """Return the traces in a folder, of a pattern such as "runs/rank*/trace.json.gz", of a URL with a pattern, or of a
    list.

    For a folder of run folders, the traces of its runs are returned. Raises InputError if there are none.
    """
    if not isinstance(where, str | Path):
        return [str(each) for each in where]
    files = _remote(str(where)) if is_url(str(where)) else _local(str(where))
    if files:
        return sorted(files, key=_natural)
    known = is_url(str(where)) or _WILD.search(str(where)) or Path(where).exists()
    raise InputError(
        f"{shown(str(where))} {'contains no traces' if known else 'does not exist'}.",
        "A folder is searched for files that end in .json or .json.gz, and for run folders."
        if known
        else "No file or folder has this name.",
        "Name a folder with one trace per rank, or a pattern in quotes.",
    )


def operations_file(where: str | Path | Sequence[str | Path]) -> Path | None:
    """Return the file of operations that is meant, or that is the only one in a folder; None if there is none.

    Raises InputError if a folder holds several.
    """
    if not isinstance(where, str | Path) or is_url(str(where)):
        return None
    folder = Path(where)
    files = sorted(folder.iterdir()) if folder.is_dir() else [Path(each) for each in _local(str(where))]
    found = [path for path in files if path.is_file() and not _is_trace(path.name) and _holds_operations(path)]
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3])
        raise InputError(
            f"{folder} holds the operations of {len(found):,} jobs.", f"They are {names}.", "Name one file."
        )
    return found[0] if found else None


def _holds_operations(path: Path) -> bool:
    try:
        return is_operations(path)
    except OSError:
        return False


def is_job(where: str) -> bool:
    """Return whether this is a folder with the traces of several ranks, and not the folder of one run."""
    folder = Path(where)
    return folder.is_dir() and not (folder / RUN_TRACE).exists() and len(_local(where)) > 1


def _local(where: str) -> list[str]:
    folder = Path(where)
    if not folder.is_dir():
        return [where] if folder.is_file() else _sources_of_pattern(where)
    files = [str(path) for path in folder.iterdir() if path.is_file() and _is_trace(path.name)]
    return files or [str(path) for path in folder.glob(f"*/{RUN_TRACE}")]


def _sources_of_pattern(pattern: str) -> list[str]:
    whole = Path(pattern)
    relative = whole.relative_to(whole.anchor) if whole.anchor else whole
    return [str(path) for path in Path(whole.anchor or ".").glob(str(relative)) if path.is_file()]


def _remote(url: str) -> list[str]:
    try:
        import fsspec
    except ImportError as error:
        why = "fsspec is not installed."
        raise MissingPackageError(f"{shown(url)} needs an optional package.", why, installing("fsspec")) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
        names = system.glob(path) if _WILD.search(path) else _paths_within(system, path)
        return [system.unstrip_protocol(name) for name in names]
    except Exception as error:  # each driver has its own exceptions
        why = f"{type(error).__name__}."
        raise InputError(f"{shown(url)} cannot be listed.", why, "Check the URL and your access.") from error


def _paths_within(system: Any, path: str) -> list[str]:
    if not system.isdir(path):
        return [path]
    files = [name for name in system.ls(path, detail=False) if _is_trace(name.rsplit("/", 1)[-1])]
    return files or system.glob(f"{path.rstrip('/')}/*/{RUN_TRACE}")


def _is_trace(name: str) -> bool:
    return bool(_TRACE.search(name)) and not _NO_TRACE.match(name)


def _natural(path: str) -> list[Any]:
    """Return a sort key that puts rank-2 before rank-10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def rank_numbers(stated: Sequence[int | None], names: Sequence[str]) -> tuple[list[int], bool]:
    """Return the ranks' numbers, and whether they had to be taken from the order of the files.

    The traces state the numbers. If some do not, or two state the same, the names of the files decide.
    """
    for numbers in (list(stated), _named(names, _RANK), _named(names, _NUMBER)):
        if all(number is not None for number in numbers) and len(set(numbers)) == len(numbers):
            return [int(number) for number in numbers if number is not None], False
    return list(range(len(names))), True


def _named(names: Sequence[str], pattern: re.Pattern[str]) -> list[int | None]:
    """Return the last number in each path that matches the pattern."""
    matches = [pattern.findall(re.sub(r"\.[a-z.]+\Z", "", name)) for name in names]
    return [int(each[-1]) if each else None for each in matches]
