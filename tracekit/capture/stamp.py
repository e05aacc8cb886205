"""Convert torch's exported trace: add tracekit's metadata, drop the environment, and compress it."""

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
    """Write `target` (gzip, beside it first, then renamed) from the JSON that torch.profiler exported.

    Events pass through unread. Raises InputError when the file is not laid out as torch lays it out.
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
    """The keys before the events, and where the first event begins."""
    text = source.read(_HEAD_BYTES)
    found = _EVENTS.search(text)
    if not found:
        raise _unknown_layout("it has no traceEvents")
    return _object(text[: found.start()].rstrip().rstrip(b",") + b"}"), found.end()


def _tail(source: IO[bytes]) -> tuple[dict[str, Any], int]:
    """The keys after the events, and where the last event ends."""
    size = source.seek(0, os.SEEK_END)
    start = source.seek(max(0, size - _TAIL_BYTES))
    found = _END.search(source.read())
    if not found:
        raise _unknown_layout("its end is missing")
    return _object(b"{" + found[1].lstrip(b", \r\n\t") + b"}"), start + found.start()


def _object(text: bytes) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _unknown_layout("its metadata is no JSON") from error


def _copy(source: IO[bytes], out: IO[bytes], first: int, last: int) -> None:
    source.seek(first)
    while (left := last - source.tell()) > 0:
        out.write(source.read(min(left, _COPY_BYTES)))


def _unknown_layout(what: str) -> InputError:
    return InputError(
        "The trace that torch exported cannot be read.",
        f"Its layout is not one we know: {what}.",
        "Report this, with the version of torch.",
    )
