"""Converts torch's exported trace: adds tracekit's metadata, drops the environment, and compresses it."""

import json
import os
import re
from pathlib import Path
from typing import IO, Any

import msgspec
from isal import igzip

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers.metadata import SAFE_KEYS
from tracekit.reports.files import written

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_END = re.compile(rb'\]\s*((?:,\s*"\w+"\s*:\s*(?:"(?:[^"\\]|\\.)*"|-?[\d.]+)\s*)*)\}\s*\Z')
_HEAD_BYTES = 1 << 24
_TAIL_BYTES = 1 << 16
_COPY_BYTES = 1 << 20


def stamp(exported: Path, target: Path, info: CaptureInfo) -> None:
    """Write `target` (gzip, first under another name, then renamed) from the JSON that torch.profiler exported.

    Events are copied without parsing. Raises InputError if the layout of the file is not that of torch.
    """
    with exported.open("rb") as source:
        head, first = _head(source)
        tail, last = _tail(source)
        kept = {key: value for key, value in {**head, **tail}.items() if key in SAFE_KEYS}
        opening = {"schemaVersion": 1, "tracekit": msgspec.to_builtins(info), **kept}
        with written(target) as beside, igzip.open(beside, "wb", compresslevel=2) as out:
            out.write(json.dumps(opening, separators=(",", ":"))[:-1].encode() + b',"traceEvents":[')
            _copy(source, out, first, last)
            out.write(b"]}")


def _head(source: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Return the keys before the events, and the offset of the first event."""
    text = source.read(_HEAD_BYTES)
    match = _EVENTS.search(text)
    if not match:
        raise _unknown_layout("it has no traceEvents")
    return _object(text[: match.start()].rstrip().rstrip(b",") + b"}"), match.end()


def _tail(source: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Return the keys after the events, and the offset after the last event."""
    size = source.seek(0, os.SEEK_END)
    start = source.seek(max(0, size - _TAIL_BYTES))
    match = _END.search(source.read())
    if not match:
        raise _unknown_layout("its end is missing")
    return _object(b"{" + match[1].lstrip(b", \r\n\t") + b"}"), start + match.start()


def _object(text: bytes) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _unknown_layout("its metadata is not JSON") from error


def _copy(source: IO[bytes], out: IO[bytes], first: int, last: int) -> None:
    source.seek(first)
    while (left := last - source.tell()) > 0:
        out.write(source.read(min(left, _COPY_BYTES)))


def _unknown_layout(what: str) -> InputError:
    return InputError(
        "The trace that torch exported cannot be read.",
        f"Its layout is unknown: {what}.",
        "Report this with the version of torch.",
    )
