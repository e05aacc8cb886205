"""Faces of rooms: the names that a folder exports, imported when they are first used."""

import ast
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


def _homes(file: Path) -> dict[str, tuple[str, str]]:
    """Return the module of each name that the block for type checkers imports, and its name there."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}
