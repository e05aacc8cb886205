"""The folders that a program may read. A path outside them is refused, even if reached through links."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers.core import InputError
from tracekit.run import FILES

_MOST_FILES = 20_000


@dataclass(frozen=True)
class Roots:
    """Folders with their links resolved."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, folders: Sequence[str | Path]) -> "Roots":
        """Resolve folders. Raises InputError for a path that is not a folder."""
        resolved = tuple(Path(folder).resolve() for folder in folders)
        for folder, path in zip(folders, resolved, strict=True):
            if not path.is_dir():
                raise InputError(f"{folder} cannot be a root.", "It is not a folder.", "Name folders with --root.")
        return cls(resolved)

    def path(self, text: str) -> Path:
        """Return an existing file or folder inside the roots. Raises InputError for anything else.

        Paths are relative to the first root. Links are followed before a path is judged: also those of all files in a
        folder, and of the files of a run that are read beside its trace.
        """
        resolved = self._inside(text)
        beside = resolved.rglob("*") if resolved.is_dir() else map(resolved.parent.joinpath, FILES)
        for at, each in enumerate(beside):
            if at >= _MOST_FILES or not self.holds(each):
                why = (
                    "It holds too many files." if at >= _MOST_FILES else "A link in it leads out of the given folders."
                )
                raise InputError(f"{text!r} cannot be read.", why, "Name a folder with nothing but traces.")
        return resolved

    def holds(self, path: Path) -> bool:
        """Return whether a path, its links followed, lies in one of the roots."""
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a name that is not text
            return False
        return any(resolved.is_relative_to(folder) for folder in self.folders)

    def _inside(self, text: str) -> Path:
        refused = InputError(
            f"{text!r} cannot be read.",
            "It is not a path inside the folders that this server was given.",
            f"Name a trace or a run's folder below {', '.join(map(str, self.folders))}.",
        )
        if not text or "\0" in text or "://" in text or text == "-":
            raise refused
        try:
            resolved = (self.folders[0] / text).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise refused from error
        if not self.holds(resolved):
            raise refused
        return resolved
