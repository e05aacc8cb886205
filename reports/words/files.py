"""Writes files atomically: a file has its final name only when it is complete."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracekit.analyzers.core import TracekitError
from tracekit.reports.words.replacing import refused


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


_UNMARKED = {"csv": "the same table", "collapsed": "the same stacks"}
"""Formats that cannot hold a mark, and what of them is replaced."""
_LINES = {"text": "\n[tracekit {}]\n", "markdown": "\n<!-- tracekit {} -->\n"}
_LAST_LINE = re.compile(r"(?:\[|<!-- )tracekit (\w+ \w+)(?:\]| -->)\s*\Z")
_FIRST_KEY = re.compile(r'\{\s*"tracekit_of": "(\w+ \w+)"')


def write_text(path: Path, text: str, form: str, kind: str, mark: str, force: bool) -> None:
    """Write the text with its kind ("analysis") and the mark of its input.

    Raises TracekitError if `path` exists and contains another kind, or the same kind for another input. A format that
    cannot hold a mark is only replaced by the same content.
    """
    if not force and path.exists():
        held = path.read_text(encoding="utf-8", errors="replace")
        same = held == text if form in _UNMARKED else _stated(held, form) == f"{kind} {mark}"
        if not same:
            raise refused(path, _UNMARKED.get(form, f"the {kind} of this input"))
    write_atomically(path, marked(text, form, f"{kind} {mark}"))


def marked(text: str, form: str, label: str) -> str:
    if form in _UNMARKED:
        return text
    if form in _LINES:
        return text + _LINES[form].format(label)
    return text.replace("{", f'{{\n "tracekit_of": "{label}",', 1)


def _stated(text: str, form: str) -> str:
    match = _LAST_LINE.search(text) if form in _LINES else _FIRST_KEY.match(text)
    return match[1] if match else ""
