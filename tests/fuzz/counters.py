"""Counts the work in a file without tracekit: what must be in its tables, or in the count of a problem.

For text that is still JSON, events are the elements of the lists of events, and device time is the sum of what they
state. For damaged text, events are those of the original that are still in it, and device time is unknown.
"""

import csv
import gzip
import json
import math
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from . import bases

_WORK = {"cpu_op", "cuda_runtime", "kernel"}
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_LARGEST_NS = 2**62
_BEGIN = 1
"""The type of a track event that begins a slice."""


@dataclass(frozen=True)
class Count:
    events: int
    """Events that must be in a table or in the count of a problem."""
    device_ns: int | None = None
    """Sum of the durations of the device's work; None: a duration is missing or impossible, or the file is damaged."""


def kineto(data: bytes, original: bytes) -> Count:
    events = _listed(data)
    if events is None:
        return Count(_intact(data, original, ", ", ": "))
    return Count(sum(map(_counts, events)), _total([_ns(each, 1000) for each in events if _on_device(each)]))


def kineto_gzip(data: bytes, original: bytes) -> Count:
    return kineto(_inflated(data), gzip.decompress(original))


def proton(data: bytes, original: bytes) -> Count:
    documents = [_listed(line) for line in data.splitlines() if line.strip()]
    if None in documents:
        return Count(_intact(data, original, ",", ":"))
    events = [event for document in documents for event in document or ()]
    return Count(sum(map(_counts, events)), _total([_ns(each, 1000) for each in events if _on_device(each)]))


def hatchet(data: bytes, _original: bytes) -> Count:
    """Its kernels are sums, which have no text of their own. An entry without a tree describes devices."""
    try:
        roots = json.loads(data)
        if not isinstance(roots, list):
            return Count(0)
        trees = [each for each in roots if not isinstance(each, dict) or each.keys() & {"children", "metrics"}]
        return Count(0, _total([time for each in trees for time in _node_times(each)]))
    except (ValueError, RecursionError):
        return Count(0)


def perfetto(data: bytes, _original: bytes) -> Count:
    trace = perfetto_trace_pb2.Trace()
    try:
        trace.ParseFromString(data)
    except DecodeError:
        return Count(0)
    begins = sum(each.HasField("track_event") and each.track_event.type == _BEGIN for each in trace.packet)
    if any(each.HasField("compressed_packets") for each in trace.packet):
        return Count(begins)
    stages = [each for each in trace.packet if each.HasField("gpu_render_stage_event")]
    base = [each.timestamp for each in trace.packet if each.HasField("clock_snapshot")]
    named = [each.name for packet in trace.packet for each in packet.interned_data.event_categories]
    if any(name.lower() in _DEVICE for name in named):
        return Count(begins + len(stages))  # slices of threads that call themselves work of a device
    near = all(base and abs(each.timestamp - base[0]) < _LARGEST_NS for each in stages)
    times = [each.gpu_render_stage_event.duration if near else None for each in stages]
    return Count(begins + len(stages), _total(times))


def nsys(data: bytes, _original: bytes) -> Count:
    """Count rows by SQL; none for a damaged database."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        rows = sum(_rows(connection, table) for table in (bases.KERNEL, bases.RUNTIME, bases.RANGES))
        return Count(rows, _total(_kernel_times(connection)))
    except (sqlite3.Error, UnicodeDecodeError):  # the second if the message of an error quotes a damaged schema
        return Count(0)
    finally:
        connection.close()


def ncu(data: bytes, original: bytes) -> Count:
    """Count the rows of the original that are still lines of the file, below a header."""
    header, *lines = (line for line in original.split(b"\n") if line.startswith(b'"'))
    _, there, below = data.partition(header)
    kept = below.split(b"\n") if there else []
    kernels = sum(kept.count(line) for line in lines if next(csv.reader([line.decode()]))[0].isdigit())
    return Count(
        kernels, _total([_cell_ns(line) for line in lines if b'"ns"' not in line]) if data == original else None
    )


def _cell_ns(line: bytes) -> float:
    return float(next(csv.reader([line.decode()]))[9])


def _total(times: list[float | None]) -> int | None:
    whole = [each for each in times if each is not None and 0 <= each < _LARGEST_NS]
    return round(sum(whole)) if len(whole) == len(times) and sum(whole) < _LARGEST_NS else None


def _listed(text: bytes) -> list[dict[Any, Any]] | None:
    """Return the elements of all top-level lists called traceEvents, {} for those that are no events; None if the text
    is not JSON."""
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    lists = [value for key, value in pairs if key == "traceEvents"] if isinstance(pairs, _Pairs) else []
    elements = [each for events in lists if isinstance(events, list) for each in events]
    return [dict(each) if isinstance(each, _Pairs) else {} for each in elements]


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object: a repeated one twice."""


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _counts(event: dict[Any, Any]) -> bool:
    """Return whether an element must be read or counted: it is work, or has no phase."""
    category = event.get("cat")
    work = isinstance(category, str) and category in _WORK
    return work if event.get("ph") == "X" else _on_device(event) or not isinstance(event.get("ph"), str)


def _on_device(event: dict[Any, Any]) -> bool:
    return isinstance(event.get("cat"), str) and event["cat"].lower() in _DEVICE


def _ns(event: dict[Any, Any], unit: int) -> int | None:
    """Return the duration; None if the event does not state a plain time and duration, or is not complete."""
    numbers = [event.get("ts"), event.get("dur")]
    plain = all(type(each) in (int, float) and abs(each) * unit < _LARGEST_NS for each in numbers)
    return round(numbers[1] * unit) if plain and event.get("ph") == "X" else None


def _node_times(node: Any) -> list[float | None]:
    if not isinstance(node, dict):
        return [None]
    metrics, children = node.get("metrics"), node.get("children", [])
    if not isinstance(metrics, dict) or not isinstance(children, list):
        return [None]
    time, count = metrics.get("time (ns)", 0), metrics.get("count", 1)
    plain = (
        type(time) in (int, float) and math.isfinite(time) and type(count) is int and 0 < count < 1000
    ) or time == 0
    return [time if plain else None, *(each for child in children for each in _node_times(child))]


def _intact(text: bytes, original: bytes, *separators: str) -> int:
    """Return the events of the original whose text occurs in the file, as often as it occurs."""
    events = [event for line in original.splitlines() for event in json.loads(line)["traceEvents"]]
    return sum(text.count(json.dumps(event, separators=separators).encode()) for event in events if _counts(event))


def _inflated(data: bytes) -> bytes:
    """Return the content of the first members, up to the first damage."""
    out = b""
    while data[:2] == b"\x1f\x8b":
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(data)
        except zlib.error:
            return out
        data = member.unused_data
    return out


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]).lower() for row in connection.execute(f'PRAGMA table_xinfo("{table}")')}


def _rows(connection: sqlite3.Connection, table: str) -> int:
    columns = _columns(connection, table)
    if not columns:
        return 0
    marks = table == bases.RANGES and "eventtype" in columns
    where = "WHERE eventType IS NOT NULL AND eventType NOT IN (34, 75)" if marks else ""
    return int(connection.execute(f'SELECT count(*) FROM "{table}" {where}').fetchone()[0])


def _kernel_times(connection: sqlite3.Connection) -> list[float | None]:
    if not {"start", "end"} <= _columns(connection, bases.KERNEL):
        return [None]
    rows = connection.execute(f'SELECT start, "end" FROM "{bases.KERNEL}"')
    plain = ((start, end) if isinstance(start, int) and isinstance(end, int) else (0, -1) for start, end in rows)
    return [end - start for start, end in plain]
