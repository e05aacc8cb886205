"""Checks before an existing output is replaced: it must be of the same kind and of the same input."""

import re
from collections.abc import Sequence
from pathlib import Path

import xxhash

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.trace import MAX_BYTES, RUN_TRACE, is_url, open_source, shown

_HEAD_BYTES = 1 << 18
_PAGE_MARK = re.compile(r'<meta name="tracekit-of" content="(\w*)">')
_TRACE_MARK = re.compile(rb'"cat":"tracekit findings begin"[^}]*\{[^}]*"of":"(\w*)"')
_GENERATOR = '<meta name="generator" content="tracekit'


def mark_of(*inputs: str | Path) -> str:
    """Return a short hash of the inputs' paths or URLs, which identifies their output.

    The paths cannot be recovered from it.
    """
    places = [shown(str(each)) if is_url(str(each)) else str(_file(each).absolute()) for each in inputs]
    return xxhash.xxh32_hexdigest("\0".join(places).encode("utf-8", "surrogateescape"))


def check_page(path: Path, kind: str, mark: str, force: bool) -> None:
    """Raise TracekitError if `path` exists and is not a page of this kind with this mark ("": without a mark)."""
    text = _beginning(path)
    if force or text is None:
        return
    stated = _PAGE_MARK.search(text)
    if f'{_GENERATOR} {kind}">' not in text or (stated[1] if stated else "") != mark:
        raise refused(path, f"the {kind} of this input")


def check_text(path: Path, what: str, words: Sequence[str], force: bool) -> None:
    """Raise TracekitError if `path` exists and does not contain all of `words`, which the new output contains."""
    text = _beginning(path)
    if not force and text is not None and not all(word in text for word in words):
        raise refused(path, what)


def check_trace(path: Path, mark: str, force: bool) -> None:
    """Raise TracekitError if `path` exists and is not a trace that was annotated with this mark."""
    if force or not path.exists():
        return
    stated = None
    try:
        with open_source(path, MAX_BYTES) as source:
            stated = _TRACE_MARK.search(source.head)
    except InputError:
        pass
    if stated is None or stated[1].decode() != mark:
        raise refused(path, "this trace, annotated before")


def check_not_input(path: Path, *inputs: str | Path) -> None:
    """Raise TracekitError if the output would replace one of the inputs."""
    if any(is_same_file(path, each) for each in inputs):
        raise TracekitError(f"{path} is an input.", "It would be overwritten.", "Name another file with -o.")


def is_same_file(path: Path, other: str | Path) -> bool:
    """Return whether both are the same existing file; a run's folder is treated as its trace."""
    return not is_url(str(other)) and path.exists() and _file(other).exists() and path.samefile(_file(other))


def _file(path: str | Path) -> Path:
    return Path(path) / RUN_TRACE if Path(path).is_dir() else Path(path)


def _beginning(path: Path) -> str | None:
    """Return the beginning of a file; None if it does not exist."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES).decode("utf-8", "replace")


def refused(path: Path, what: str) -> TracekitError:
    """Return the error for an existing output that is not `what` the command would write."""
    return TracekitError(
        f"{path} exists, and is not {what}.",
        "It would be overwritten.",
        "Name another file with -o, or add --force to replace it.",
    )
