"""Writes files atomically, and checks first that a file which is replaced is of the same kind and input."""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import xxhash

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.trace import MAX_BYTES, RUN_TRACE, is_url, open_source, shown


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
