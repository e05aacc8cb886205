"""Read Kineto JSON, the format of torch.profiler and of tracekit, in one pass, a chunk at a time."""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.kineto.assembly import assemble, release_freed
from tracekit.analyzers.trace.kineto.chunks import Chunks, Leftover, count_events
from tracekit.analyzers.trace.kineto.event_columns import EventColumns, joined
from tracekit.analyzers.trace.kineto.metadata import Header, read_header
from tracekit.analyzers.trace.kineto.parallel import read_chunks
from tracekit.analyzers.trace.kineto.salvage import TooDamagedError
from tracekit.analyzers.trace.problems import Problem, problem
from tracekit.analyzers.trace.ranges import is_impossible
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Metadata, Trace

FORMAT = "PyTorch profiler (Kineto) JSON"

_JOINED = 32
_JSON_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*+[\[{]")


def sniff(head: bytes) -> bool:
    return bool(_JSON_START.match(head))


def read(source: Source) -> Trace:
    """Read a trace. Raises InputError if the source contains no events of a PyTorch profiler."""
    with _no_garbage_collection():
        events = _read_events(source)
        tables = assemble(events.parts)
    if tables is None:
        raise _no_events(source, events)
    header = read_header(_text(events.head), _text(events.tail or b""))
    metadata = Metadata(
        format="kineto",
        base_ns=header.base_ns + tables.base_ns,
        zero_ns=tables.base_ns,
        devices=header.devices,
        threads=tables.threads,
        rank=header.rank,
        world_size=header.world_size,
        host=header.host,
        groups=header.groups,
        capture=header.capture,
        peak_memory_bytes=max(part.peak_memory for part in events.parts),
        python_calls=sum(part.python_calls for part in events.parts),
    )
    rows = [*_damage(source, events, header), *tables.problems, *lacking(tables.host, tables.device)]
    release_freed()
    return Trace(metadata, tables.host, tables.device, problems.table(rows))


class _Events(msgspec.Struct):
    """The columns of all chunks, and the text around the events.

    `tail` is None if the end of the events is missing. `left` counts text far after the events, beyond `tail`.
    """

    head: bytes
    tail: bytes | None = None
    parts: list[EventColumns] = msgspec.field(default_factory=list)
    repaired: int = 0
    bad_utf8: int = 0
    skipped: int = 0
    total: int = 0
    left: Leftover = msgspec.field(default_factory=Leftover)
    _apart: int = 0

    def add(self, columns: EventColumns) -> None:
        """Add the columns of a chunk. Columns are joined from time to time, because many small arrays fragment
        memory."""
        self.parts.append(columns)
        self._apart += 1
        if self._apart == _JOINED:
            self.parts[-_JOINED:] = [joined(self.parts[-_JOINED:])]
            self._apart = 0


def _read_events(source: Source) -> _Events:
    chunks = Chunks(source.blocks())
    if not chunks.opened:
        raise InputError(
            f"{source.name} is not a trace.",
            'It is JSON without a list of "traceEvents".',
            "Export one with torch.profiler's export_chrome_trace, or make one with tracekit profile.",
        )
    events = _Events(chunks.head)
    try:
        for chunk in read_chunks(chunks):
            events.add(chunk.columns)
            events.total += chunk.total
            events.repaired += chunk.repaired
            events.bad_utf8 += chunk.bad_utf8
            events.skipped += chunk.skipped
            events.tail = chunk.tail
    except TooDamagedError as error:
        raise InputError(
            f"{source.name} is too damaged to be read.", str(error), "Export the trace again, or copy it again."
        ) from error
    events.left = chunks.drain()
    return events


def _damage(source: Source, events: _Events, header: Header) -> list[Problem]:
    cut_off = source.damage or ("" if events.tail is not None and header.whole else "its JSON ends early")
    phaseless = sum(p.phaseless for p in events.parts)
    before = count_events(events.head) if header.broken else 0  # Their list has lost its name.
    return [
        problem("truncated", int(bool(cut_off)), cut_off),
        problem("repaired-events", events.repaired),
        problem("bad-utf8", events.bad_utf8),
        problem("skipped-events", before + events.skipped + phaseless),
        *_problems_behind_the_end(events.left, header),
        problem("secrets-in-metadata", header.secrets),
        problem("unreadable-metadata", len(header.unreadable), ", ".join(header.unreadable)),
    ]


def _problems_behind_the_end(left: Leftover, header: Header) -> list[Problem]:
    """Return problems for text after the first list of events: further lists and documents, or text without events."""
    left.add(header.rest.encode("utf-8", "replace"))
    more = left.events + header.more_events
    where = f"{left.size:,} bytes after the end of the first document" if left.events else "a second traceEvents"
    return [
        problem("more-events", more, where),
        problem("trailing-text", 0 if more else left.size),
    ]


def _no_events(source: Source, events: _Events) -> InputError:
    why = f"None of its {events.total:,} events is work of a PyTorch profiler." if events.total else "It has no events."
    if source.damage or events.tail is None:
        why += " It is cut off."
    return InputError(f"{source.name} contains nothing to analyze.", why, "Record steps while the profiler is active.")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").removeprefix("\ufeff")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during decoding, which creates millions of objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def lacking(host: pd.DataFrame, device: pd.DataFrame) -> list[Problem]:
    """Return a problem for each kind of record that is missing from HOST or DEVICE."""
    shapes = host.loc[host["category"] == "op", "shapes"]
    launches = host.loc[(host["category"] == "runtime") & (host["correlation"] >= 0), "correlation"]
    return [
        problem("no-device-events", int(device.empty)),
        problem("no-host-events", int(host.empty)),
        problem("duplicate-correlations", int(launches.duplicated().sum())),
        problem("no-shapes", int(not shapes.empty and bool((shapes == "").all()))),
        impossible_shapes(host),
    ]


def impossible_shapes(host: pd.DataFrame) -> Problem:
    """Return a problem for rows with shapes that no tensor has. Analyses take them as unknown."""
    absurd = [is_impossible(str(text)) for text in host["shapes"].cat.categories]
    rows = np.append(absurd, False)[host["shapes"].cat.codes] if any(absurd) else np.empty(0)
    return problem("impossible-values", int(rows.sum()), ": shapes of more than a petabyte")
