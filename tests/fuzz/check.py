"""Reads a mutated file, and compares the tables with the content of the file.

The invariant: every event that a plain parser sees in the file is either in the tables or in the count of a problem.
For JSON that is still valid the plain parser is `json`, and events are the elements of the lists of events. Otherwise
events are those of the original whose text is still in the file, byte for byte. For SQLite they are the rows of tables
that the reader knows, counted by SQL; for CSV the lines of the original that are still whole. A file that was cut off
(problem "truncated") may end inside an event: for a damaged gzip or database it accounts for the rest.
"""

import csv
import json
import random
import sqlite3
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from tracekit.analyzers import analyze
from tracekit.analyzers.errors import TracekitError
from tracekit.analyzers.readers import load
from tracekit.analyzers.trace import Trace

from . import bases, mutators

LONGEST_S = 10.0
LOSSES = {
    "dropped-events",
    "skipped-events",
    "implausible-time",
    "unpaired-events",
    "unknown-category",
    "more-events",
    "unread-table",
}
_NOT_COUNTED = {"truncated", "trailing-bytes"}
WORK = {"cpu_op", "cuda_runtime", "kernel"}
_BEGIN = 1
"""The type of a track event that begins a slice."""
TABLES = (bases.KERNEL, bases.RUNTIME, "NVTX_EVENTS")
BASES = {
    "kineto": bases.kineto,
    "kineto-gzip": bases.kineto,
    "nsys": bases.nsys,
    "ncu": bases.ncu,
    "perfetto": bases.perfetto,
    "proton": bases.proton,
    "proton-tree": bases.proton_tree,
}


class FuzzError(AssertionError):
    """What is wrong with the reading of a mutated file."""


def run_one(seed: int, folder: Path, kinds: Sequence[str] = tuple(BASES)) -> str:
    """Mutate, read and check one file, and return the outcome. Raises FuzzError, or whatever the reader raises."""
    chance = random.Random(seed)
    kind = chance.choice(kinds)
    original = BASES[kind]()
    if kind == "kineto-gzip":
        data = mutators.compressed(chance, original)
    else:
        data = chance.choice(mutators.OF_FORMAT[kind])(chance, original)
    path = folder / "mutated"
    path.write_bytes(data)
    start = time.process_time()
    trace = _read(path)
    if time.process_time() - start > LONGEST_S:
        raise FuzzError(f"took {time.process_time() - start:.0f} s of CPU")
    if trace is None:
        return "refused"
    missing = _expected(kind, data, original) - _accounted(trace)
    if missing > 0 and not _NOT_COUNTED & set(trace.problems["code"]):
        raise FuzzError(f"{missing} events of {kind} were lost: {trace.problems[['code', 'count']].values.tolist()}")
    return "reported" if set(trace.problems["code"]) - {"no-shapes", "no-timeline"} else "read"


def _read(path: Path) -> Trace | None:
    try:
        trace = load(path, max_bytes=1 << 30)
        analyze(trace)
    except TracekitError as error:
        if not (error.what and error.hint):
            raise FuzzError(f"an error without advice: {error}") from error
        return None
    return trace


def _accounted(trace: Trace) -> int:
    counts = zip(trace.problems["code"], trace.problems["count"], strict=True)
    return len(trace.host) + len(trace.device) + sum(int(n) for code, n in counts if code in LOSSES)


def _expected(kind: str, data: bytes, original: bytes) -> int:
    if kind == "nsys":
        return _rows(data)
    text = _inflated(data) if kind == "kineto-gzip" else data
    if kind == "ncu":
        return _whole_lines(text, original)
    if kind == "perfetto":
        return _packets(data)
    if kind == "proton-tree":
        return 0  # Its kernels are sums, which have no text of their own.
    return _json_events(text) if _is_json(text) else _intact_events(text, original)


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


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json_events(text: bytes) -> int:
    """Return the elements of all top-level lists called traceEvents that are work, or that are no events."""
    pairs = json.loads(text, object_pairs_hook=list)
    lists = [value for key, value in pairs if key == "traceEvents"]
    return sum(_counts(element) for events in lists if isinstance(events, list) for element in events)


def _counts(element: object) -> bool:
    """Return whether an element must be read or counted: it is work, or has no phase."""
    event = {pair[0]: pair[1] for pair in element if len(pair) == 2} if _is_object(element) else {}
    category = event.get("cat")
    return event.get("ph") != "X" or (isinstance(category, str) and category in WORK)


def _is_object(element: object) -> bool:
    return isinstance(element, list) and bool(element) and all(isinstance(pair, tuple) for pair in element)


def _intact_events(text: bytes, original: bytes) -> int:
    """Return the events of the original whose text occurs in the file, as often as it occurs."""
    lines = original.splitlines() if original.startswith(b'{"displayTimeUnit"') else [original]
    separators = (", ", ": ") if len(lines) == 1 else (",", ":")
    events = [event for line in lines for event in json.loads(line)["traceEvents"]]
    return sum(text.count(json.dumps(event, separators=separators).encode()) for event in events)


def _packets(data: bytes) -> int:
    """Return the number of beginnings of slices and of render stages; 0 for a damaged file."""
    trace = perfetto_trace_pb2.Trace()
    try:
        trace.ParseFromString(data)
    except DecodeError:
        return 0
    begins = sum(each.HasField("track_event") and each.track_event.type == _BEGIN for each in trace.packet)
    return begins + sum(each.HasField("gpu_render_stage_event") for each in trace.packet)


def _rows(data: bytes) -> int:
    """Return the number of rows in the tables of events, by SQL; 0 for a damaged database."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        return sum(_rows_of(connection, table) for table in TABLES)
    except (sqlite3.Error, UnicodeDecodeError):  # the second if the message of an error quotes a damaged schema
        return 0
    finally:
        connection.close()


def _rows_of(connection: sqlite3.Connection, table: str) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", [table]).fetchone()
    if not known:
        return 0
    if table != "NVTX_EVENTS":
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    columns = {str(row[1]).lower() for row in connection.execute(f"PRAGMA table_xinfo({table})")}
    where = "WHERE eventType IS NOT NULL AND eventType NOT IN (34, 75)" if "eventtype" in columns else ""
    return int(connection.execute(f"SELECT count(*) FROM {table} {where}").fetchone()[0])


def _whole_lines(text: bytes, original: bytes) -> int:
    """Return the rows of the original that are still lines of the file, below a header."""
    rows = [
        line
        for line in original.split(b"\n")
        if line.startswith(b'"') and next(csv.reader([line.decode()]))[0].isdigit()
    ]
    header = next(line for line in original.split(b"\n") if line.startswith(b'"ID"'))
    _, header_there, below = text.partition(header)
    lines = below.split(b"\n") if header_there else []
    return sum(lines.count(row) for row in rows)
