"""Source files and documentation of installed Python packages: chosen, freed of copies, and split by file."""

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

_SUFFIXES = (".py", ".rst", ".md")
_LEFT_OUT = ("licen", "copying", "notice", "authors", "third_party", "site-packages", "dist-packages")
_SHORTEST, _LONGEST = 400, 400_000
_LINE = 12
"""Shorter lines are everywhere; they are no sign of a copy."""
_HELD_OUT_OF = 40
_SHIPPED, _CALIBRATION = 190_000, 300_000


@dataclass(frozen=True)
class Texts:
    train: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    shipped: str = ""
    """Held-out files of the standard library alone, whose license permits to pass them on."""
    calibration: str = ""
    """Some of the files of the standard library that are trained on."""


def package_texts(characters: int, roots: Iterable[Path] = ()) -> Texts:
    """Return texts below the roots, or else of the standard library and of all packages that are installed beside
    torch and transformers.

    Which files are held out depends on their names alone. A file of which most lines were seen before is left out;
    held-out files come first, so that no copy of them is trained on.
    """
    files = sorted((_drawn(name) % _HELD_OUT_OF != 0, _drawn(name), name, path) for name, path in _files(roots))
    seen: set[int] = set()
    train, held_out = [], []
    standard: dict[bool, list[str]] = {False: [], True: []}
    for trained, _, name, path in files:
        text = _new_text(path, seen)
        if not text or (trained and characters <= 0):
            continue
        (train if trained else held_out).append(text)
        characters -= len(text) if trained else 0
        if name.startswith("stdlib/"):
            standard[trained].append(text)
    return Texts(train, held_out, _joined(standard[False], _SHIPPED), _joined(standard[True], _CALIBRATION))


def _joined(texts: list[str], characters: int) -> str:
    return "\n".join(texts).encode("ascii", "ignore").decode()[:characters]


def _drawn(name: str) -> int:
    """Return a number that puts files into an order without a pattern."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def _files(roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file; names begin with that of their package."""
    folders = {root.name: root for root in roots} or _installed()
    for package, folder in folders.items():
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.suffix in _SUFFIXES and not any(part in name.lower() for part in _LEFT_OUT):
                yield f"{package}/{name}", path


def _installed() -> dict[str, Path]:
    specs = [find_spec(name) for name in ("torch", "transformers")]
    places = {Path(spec.origin).parents[1] for spec in specs if spec and spec.origin}
    found = {folder.name: folder for place in sorted(places) for folder in place.iterdir() if _is_package(folder)}
    return {**found, "stdlib": Path(sysconfig.get_path("stdlib"))}


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _new_text(path: Path, seen: set[int]) -> str:
    """Return a file's text, or "" if it is too short or long, no text, or mostly known; its lines are then known."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (UnicodeDecodeError, OSError):
        return ""
    lines = {hash(line) for line in map(str.strip, text.splitlines()) if len(line) >= _LINE}
    if not _SHORTEST <= len(text) <= _LONGEST or len(lines & seen) * 2 > len(lines):
        return ""
    seen |= lines
    return text
