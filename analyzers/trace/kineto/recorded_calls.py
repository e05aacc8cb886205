"""Reads from a profiler trace, in a separate pass, which calls it recorded (by "Record function id") and how long their
kernels took, or every allocation and free (`profile_memory=True`).
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from msgspec import field

from tracekit.analyzers.core import InputError, Int64, Number, tables
from tracekit.analyzers.trace.kineto.chunks import Chunks, decode_sound
from tracekit.analyzers.trace.kineto.columns import LAST_US, MEMORY, starts_ns, starts_us
from tracekit.analyzers.trace.kineto.events import BROKEN, Event, MoveArgs, decode_args
from tracekit.analyzers.trace.kineto.salvage import Effort, decode_chunk
from tracekit.analyzers.trace.source import MAX_BYTES, open_source

_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


class _Arguments(msgspec.Struct, gc=False):
    record: Int64 = field(default=-1, name="Record function id")
    external: Int64 = field(default=-1, name="External id")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    cat: str = ""
    dur: Number | None = None
    args: _Arguments | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 -- as the file spells it


class RecordedCalls(msgspec.Struct, frozen=True):
    """Information of a profiler trace on the calls of an execution trace."""

    names: dict[int, str]
    kernel_ns: dict[int, float]
    """Device time that a call launched itself."""


def read(path: str | Path, *, max_bytes: int = MAX_BYTES) -> RecordedCalls:
    """Return the calls of a profiler trace. Raises InputError if it is damaged or has no ids of calls."""
    with open_source(path, max_bytes) as source:
        name = source.name
        try:
            events = source.decoded(msgspec.json.Decoder(_Trace).decode).traceEvents
        except BROKEN as error:
            raise InputError(
                f"{name} cannot be joined with an execution trace.",
                f"It is not a complete JSON trace of torch.profiler: {error}.",
                "Leave out --execution-trace, or record both again.",
            ) from error
    calls = {each.args.external: each for each in events if each.args and each.args.record >= 0}
    if not calls:
        raise InputError(
            f"{name} cannot be joined with an execution trace.",
            'Its events have no "Record function id".',
            "Record both with PyTorch 2.1 or later.",
        )
    spent: dict[int, float] = defaultdict(float)
    for each in events:
        if each.cat in _WORK and each.args and each.args.external in calls:
            spent[_record(calls[each.args.external])] += 1e3 * max(each.dur or 0.0, 0.0)
    return RecordedCalls({_record(each): each.name for each in calls.values()}, dict(spent))


def _record(event: _Event) -> int:
    return event.args.record if event.args else -1


MOVES = tables(__file__)["memory_moves"]
_CPU = 0


def read_moves(path: str | Path, zero_ns: int) -> pd.DataFrame:
    """Return MOVES of the device with the most memory, or of the host if no device has any. `zero_ns` is from
    Metadata."""
    with open_source(path, MAX_BYTES) as source:
        events = list(_memory_events(Chunks(source.blocks())))
    us = starts_us([event.ts for event in events])
    args = decode_args(MoveArgs, [event.args for event in events])
    table = pd.DataFrame(
        {
            "time_ns": starts_ns([event.ts for event in events], us) - zero_ns,
            "address": np.array([each.address for each in args], dtype=np.int64),
            "bytes": np.array([each.bytes for each in args], dtype=np.int64),
            "allocated_bytes": np.array([each.allocated for each in args], dtype=np.int64),
            "on_host": [each.device_kind == _CPU for each in args],
            "device": [each.device for each in args],
        }
    )[np.abs(us) < LAST_US]
    chosen = _rows_of_one_device(table)
    return MOVES.frame({column.name: chosen[column.name] for column in MOVES.columns})


def _rows_of_one_device(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table
    chosen = table[~table["on_host"]] if not table["on_host"].all() else table
    most = chosen.groupby("device")["allocated_bytes"].max().idxmax()
    return chosen[chosen["device"] == most].sort_values("time_ns", kind="stable", ignore_index=True)


def _memory_events(chunks: Chunks) -> Iterator[Event]:
    for chunk in chunks:
        if MEMORY.encode() in chunk.text:
            events = None if chunk.final else decode_sound(chunk.text)
            if events is None:
                events = decode_chunk(chunk.text, chunk.final, Effort()).events
            yield from (event for event in events if event.ph == "i" and event.name == MEMORY)
