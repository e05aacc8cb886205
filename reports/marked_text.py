"""Text outputs with a mark of their input, so that a command only overwrites its own earlier output."""

import re
from pathlib import Path

from tracekit.reports.files import write_atomically
from tracekit.reports.replacing import refused

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
