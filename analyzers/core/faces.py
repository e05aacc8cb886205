"""Faces of rooms: the names that a folder exports, imported when they are first used."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from sys import modules
from typing import Any


def lazily(room: str, file: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a room, which imports a name of its face when it is first used.

    The face is the block `if TYPE_CHECKING:` of the room's `file`, which type checkers and readers see as imports. So
    that a room costs nothing until it is used, Python reads the block only here.
    """
    homes: dict[str, tuple[str, str]] = {}

    def find(name: str) -> Any:
        if not homes:
            homes.update(_homes(Path(file)))
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        home, known = homes[name]
        if home != room and (found := getattr(modules.get(home), known, None)) is not None:
            return found
        is_module = home == room or not hasattr(import_module(home), known)
        return import_module(f"{home}.{known}") if is_module else getattr(modules[home], known)

    return find


_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)
"""An import of the block. Parsing the file as Python takes twenty times as long."""


def _homes(file: Path) -> dict[str, tuple[str, str]]:
    """Return the module of each name that the block for type checkers imports, and its name there."""
    homes = {}
    for home, several, one in _IMPORT.findall(file.read_text(encoding="utf-8")):
        for name in filter(None, map(str.strip, (several or one).split(","))):
            known, _, alias = name.partition(" as ")
            homes[alias or known] = home, known
    return homes
