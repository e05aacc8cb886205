"""What a user adds to tracekit: packages that are installed, by their entry points, and files for one command.

An addition that fails costs a line on stderr, never the run. What is added is part of the key of cached answers.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["tracekit.readers", "tracekit.ops", "tracekit.optimizations"]

_for_now: ContextVar[tuple[str, ...]] = ContextVar("additions", default=())


@cache
def _declared() -> tuple["EntryPoint", ...]:
    """Return the entry points of tracekit's groups.

    importlib.metadata takes 15 ms to import and to read all of them, so it is used only if a package names a group.
    """
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(map(_names_a_group, files)):
        return ()
    from importlib.metadata import entry_points

    known = entry_points()
    return tuple(each for group in get_args(Group) for each in known.select(group=group))


def _names_a_group(file: Path) -> bool:
    try:
        return b"[tracekit." in file.read_bytes()
    except OSError:
        return False


@cache
def plugged(group: Group) -> tuple[Any, ...]:
    """Return what installed packages add to a group; those that fail are left out with a line on stderr."""
    return tuple(value for each in _declared() if each.group == group for value in _loaded(each))


def _loaded(point: "EntryPoint") -> Iterator[Any]:
    try:
        yield point.load()
    except Exception as error:  # a stranger's code may fail with anything
        left_out(f"{point.name} ({point.value})", error)


def left_out(what: str, error: Exception) -> None:
    """Say on stderr, once, that an addition is left out."""
    _said(f"tracekit leaves out the plug-in {what}: {type(error).__name__}: {error}")


@cache
def _said(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def added(identity: str) -> Iterator[None]:
    """Tell cached answers of the block from others by `identity`, which says what was added."""
    token = _for_now.set((*_for_now.get(), identity))
    try:
        yield
    finally:
        _for_now.reset(token)


def additions() -> str:
    """Return the identities of all that is added now; "" if nothing is."""
    installed = (f"{each.group} {each.value} {each.dist and each.dist.version}" for each in _declared())
    return "\0".join((*installed, *_for_now.get()))
