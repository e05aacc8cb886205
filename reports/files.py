"""Writes files atomically: a file has its final name only when it is complete."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracekit.analyzers.errors import TracekitError


def check_writable(path: Path) -> None:
    """Raise TracekitError if `path` cannot be written. Commands call it before they do any work."""
    folder = next(above for above in path.absolute().parents if above.exists())
    if path.is_dir():
        raise TracekitError(f"Cannot write {path}.", "It is a folder.", "Name a file in it.")
    if path.exists() and not path.is_file():
        raise TracekitError(
            f"Cannot write {path}.", "It is a device or a pipe.", "Leave out -o to write to standard output."
        )
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise TracekitError(f"Cannot write {path}.", f"{folder} is not a writable folder.", "Choose another with -o.")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to a temporary file beside `path`, then rename it.

    Parent folders are created. Raises TracekitError if the file cannot be written.
    """
    with written(path) as beside:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which is renamed to `path` if the block succeeds and removed if it fails.

    Parent folders are created. Raises TracekitError if the file cannot be written.
    """
    beside = path.with_name(f".tracekit-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.touch(mode=0o600, exist_ok=False)
            yield beside
            beside.chmod(_mode(path))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise TracekitError(f"Cannot write {path}.", f"{error.strerror}.", "Choose another place with -o.") from error


def _mode(path: Path) -> int:
    """Return the permissions of the existing file, else those that the umask permits."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
