"""Read a Perfetto trace: packets to events, and events to the tables of Kineto's JSON."""

import msgspec

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.kineto.assembly import Tables, assemble
from tracekit.analyzers.trace.kineto.event_columns import EventColumns, event_columns
from tracekit.analyzers.trace.kineto.events import Event
from tracekit.analyzers.trace.kineto.metadata import device_properties
from tracekit.analyzers.trace.kineto.reader import lacking
from tracekit.analyzers.trace.perfetto.collecting import Collected
from tracekit.analyzers.trace.perfetto.packets import Framing
from tracekit.analyzers.trace.perfetto.slices import UNENDED, end_times, events
from tracekit.analyzers.trace.problems import Problem, problem
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Metadata, Trace

_CHUNK = 50_000


def read(source: Source) -> Trace:
    """Read a trace. Raises InputError if it contains no work of PyTorch, and MissingPackageError without Perfetto's
    package."""
    framing, collected = Framing(), Collected()
    for packets in framing.runs(source.blocks()):
        collected.add(packets)
    ends, over = end_times(collected.marks, len(collected.slices))
    last_ns = max((mark.time_ns for mark in collected.marks), default=0)
    parts = _columns([*events(collected.slices, ends, collected.tracks, last_ns), *_names(collected), *collected.work])
    tables = assemble(parts)
    cut_off = source.damage or framing.why
    if tables is None:
        raise _no_work(source, collected, cut_off)
    rows = [
        problem("truncated", int(bool(cut_off)), cut_off),
        problem("skipped-events", collected.undecoded),
        problem("dropped-events", collected.lost),
        problem("unended-ranges", ends.count(UNENDED)),
        problem("unpaired-events", over),
        problem("unused-activity", collected.unused.total(), ", ".join(collected.unused)),
        *tables.problems,
        *lacking(tables.host, tables.device),
    ]
    return _trace(tables, collected, rows, parts)


def _columns(all_events: list[Event]) -> list[EventColumns]:
    starts = range(0, max(len(all_events), 1), _CHUNK)
    return [event_columns(all_events[start : start + _CHUNK]) for start in starts]


def _names(collected: Collected) -> list[Event]:
    """Return the events with which Kineto names its threads."""
    tracks = collected.tracks
    return [
        Event(ph="M", name="thread_name", pid=pid, tid=tid, args=msgspec.Raw(msgspec.json.encode({"name": name})))
        for uuid, (pid, tid) in tracks.threads.items()
        if (name := tracks.names.get(uuid))
    ]


def _trace(tables: Tables, collected: Collected, rows: list[Problem], parts: list[EventColumns]) -> Trace:
    metadata = Metadata(
        format="perfetto",
        base_ns=tables.base_ns + collected.clocks.to_real_ns,
        zero_ns=tables.base_ns,
        devices=device_properties(collected.devices),
        threads=tables.threads,
        peak_memory_bytes=max(part.peak_memory for part in parts),
    )
    return Trace(metadata, tables.host, tables.device, problems.table(rows))


def _no_work(source: Source, collected: Collected, cut_off: str) -> InputError:
    seen, lost = len(collected.slices) + len(collected.work), collected.lost
    why = [f"None of its {seen:,} events is work of PyTorch or Proton." if seen else "It has no events."]
    why += [f"{lost:,} packet{'s refer' if lost > 1 else ' refers'} to dropped ones."] * bool(lost)
    why += [f"It ends early: {cut_off}."] * bool(cut_off)
    return InputError(
        f"{source.name} is a Perfetto trace without anything to analyze.",
        " ".join(why),
        "Export one with torch.profiler's export_chrome_trace('trace.pftrace'), or record steps while it is active.",
    )
