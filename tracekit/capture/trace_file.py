"""Writes a trace file in the JSON format of torch.profiler, event by event, compressed."""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
from isal import igzip

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.hardware import GPU
from tracekit.reports.files import written

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
