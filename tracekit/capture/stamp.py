"""Converts torch's exported trace: adds tracekit's metadata, drops the environment, and compresses it."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
from isal import igzip

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.trace import SAFE_KEYS, CaptureInfo
from tracekit.reports.words import written

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


_BATCH = 4096


def write(path: Path, info: CaptureInfo, gpu: GPU, events: Iterable[Mapping[str, Any]]) -> None:
    """Write the events, whose times are microseconds from 0. The file is written whole or not at all."""
    encode = msgspec.json.Encoder().encode
    rest = iter(events)
    with written(path) as beside, beside.open("wb") as file, _compressed(file) as out:
        out.write(encode(_header(info, gpu))[:-1] + b',"traceEvents":[')
        separator = b"\n"
        while batch := list(islice(rest, _BATCH)):
            out.write(separator + b",\n".join(map(encode, batch)))
            separator = b",\n"
        out.write(b"\n]}\n")


def _compressed(file: IO[bytes]) -> igzip.IGzipFile:
    """Compress without file name and time in the gzip header, so that equal runs give equal files."""
    return igzip.IGzipFile(filename="", mode="wb", compresslevel=2, fileobj=file, mtime=0)


def _header(info: CaptureInfo, gpu: GPU) -> dict[str, Any]:
    major, minor = gpu.compute_capability
    device = {
        "id": 0,
        "name": gpu.name,
        "totalGlobalMem": gpu.memory_bytes,
        "computeMajor": major,
        "computeMinor": minor,
        "numSms": gpu.sms,
    }
    return {
        **({"distributedInfo": _first_rank(info.ranks)} if info.ranks else {}),
        "schemaVersion": 1,
        "tracekit": info,
        "deviceProperties": [device],
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
    }


def _first_rank(ranks: int) -> dict[str, Any]:
    """Return the description of a rank that torch writes for a job with one group. All modelled ranks are identical."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}
    return {"backend": "nccl", "rank": 0, "world_size": ranks, "pg_count": 1, "pg_config": [group]}
