"""Repair the text of an event: NaN, stray or missing commas, control characters, quotes and backslashes in names."""

import re
from collections.abc import Iterator

from tracekit.analyzers.trace.kineto.events import BROKEN, PHASES, Event, decode_events, decode_mistyped

_NO_NUMBER = re.compile(r"([:\[,]\s*+)[-+]?(?:NaN|nan|Infinity|inf)\b")
_TRAILING_COMMA = re.compile(r",(?=\s*+[}\]])")
_MISSING_COMMA = re.compile(r'(["\d\]}el])\s++(?="[^"\\]{1,64}"\s*+:)')
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(
    r"""\\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|)"""
)
_VALUE = re.compile(r'(:\s*+")(.{0,2048}?)("\s*+(?:,\s*+"[^"]{1,64}"\s*+:|\}))', re.DOTALL)
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def repaired_events(raw: bytes) -> tuple[list[Event], int, bool]:
    """Return (events, number of other objects among them, whether the text contained bytes that are not UTF-8).

    Several objects are found where the first key of one is damaged. There are no events if none can be repaired.
    """
    text = raw.decode("utf-8", "replace").strip(" \t\r\n,")
    for attempt in _attempts(text):
        objects = _decoded(attempt.encode())
        events = [each for each in objects if each.ph in PHASES]
        if events:
            return events, len(objects) - len(events), not _is_utf8(raw)
    return [], 0, False


def _attempts(text: str) -> Iterator[str]:
    """Yield the text with more and more repairs. Quotes come last, because their repair is a guess."""
    yield text
    text = _CONTROL.sub(" ", text)
    text = _ESCAPE.sub(lambda m: m[0] if m[1] else r"\\", text)
    text = _TRAILING_COMMA.sub("", _NO_NUMBER.sub(r"\1null", text))
    yield text
    yield _MISSING_COMMA.sub(r"\1, ", text)
    yield _VALUE.sub(lambda m: m[1] + _BARE_QUOTE.sub(r"\"", m[2]) + _closing_escape(m[2]) + m[3], text)


def _closing_escape(value: str) -> str:
    """Return a backslash if the value ends in one that would escape the closing quote."""
    return "\\" * ((len(value) - len(value.rstrip("\\"))) % 2)


def _decoded(text: bytes) -> list[Event]:
    try:
        return decode_events(text)
    except BROKEN:
        pass
    try:
        return [decode_mistyped(text)]
    except BROKEN:
        return []


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
