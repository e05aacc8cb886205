"""Read from a profiler trace which calls it recorded and how long their kernels took, by "Record function id"."""

from collections import defaultdict
from pathlib import Path

import msgspec
from msgspec import field

from tracekit.analyzers.core import InputError, Int64, Number
from tracekit.analyzers.trace.kineto.events import BROKEN
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
