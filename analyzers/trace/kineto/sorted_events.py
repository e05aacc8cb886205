"""Sorts the events of one chunk by kind."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracekit.analyzers.trace.kineto.events import (
    DEVICE_KINDS,
    HOST_KINDS,
    PHASES,
    PYTHON_FRAME,
    Event,
    MemoryArgs,
    decode_args,
    kind_of,
)


@dataclass
class SortedEvents:
    """The events of a chunk by kind."""

    host: list[Event] = field(default_factory=list)
    modules: list[Event] = field(default_factory=list)
    device: list[Event] = field(default_factory=list)
    marks: list[Event] = field(default_factory=list)
    metadata: list[Event] = field(default_factory=list)
    unknown: list[Event] = field(default_factory=list)
    not_work: list[Event] = field(default_factory=list)
    memory: list[Event] = field(default_factory=list)
    phaseless: int = 0
    """Number of events without a known phase, and of device work in a phase that has no duration."""

    def list_of(self, category: str) -> list[Event]:
        """Return the list for complete events of a category."""
        kind = kind_of(category)
        if kind in DEVICE_KINDS:
            return self.device
        if kind == "module":
            return self.modules
        return self.host if kind in HOST_KINDS else self.unknown if kind == "unknown" else self.not_work


class _Sinks(dict[str, list[Event]]):
    """Maps a category to the list that collects it, chosen when the category is first seen."""

    def __init__(self, groups: SortedEvents) -> None:
        self._groups = groups

    def __missing__(self, category: str) -> list[Event]:
        sink = self[category] = self._groups.list_of(category)
        return sink


def sort(events: Sequence[Event]) -> SortedEvents:
    """Sort the events of one chunk by kind."""
    groups = SortedEvents()
    sinks = _Sinks(groups)
    for event in events:
        if event.ph == "X":
            sinks[event.cat].append(event)
        elif event.ph == "B" or event.ph == "E":
            groups.marks.append(event)
        elif event.ph == "M":
            groups.metadata.append(event)
        elif event.ph == "i" and event.name == MEMORY:
            groups.memory.append(event)
        elif event.ph not in PHASES or sinks[event.cat] is groups.device:
            groups.phaseless += 1
    return groups


MODULE_PREFIX = "nn.Module: "
SHORTEST_FRAME_US = 100.0
"""Shortest call that is kept. Shorter ones are most of the events of such a trace, and cannot explain a long gap."""
_GARBAGE_COLLECTION = "Python GC"
_GRAPHS = "cudagraph_trees.py"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def modules_and_frames(calls: list[Event]) -> list[Event]:
    """Return the module calls, and the other long calls; the latter get the category PYTHON_FRAME."""
    modules = [call for call in calls if call.name.startswith(MODULE_PREFIX)]
    frames = [call for call in calls if _lasts(call) and not call.name.startswith(MODULE_PREFIX)]
    for frame in frames:
        frame.cat, frame.name = PYTHON_FRAME, _ADDRESS.sub("", frame.name)
    return modules + frames


def _lasts(call: Event) -> bool:
    return call.name == _GARBAGE_COLLECTION or _GRAPHS in call.name or (call.dur or 0.0) >= SHORTEST_FRAME_US


MEMORY = "[memory]"
"""Name of allocation and free events."""
_CPU = 0


def peak_memory(events: list[Event]) -> int:
    """Return the largest number of bytes allocated on one device after any event; 0: no event is on a device."""
    args = decode_args(MemoryArgs, [each.args for each in events])
    return max((each.allocated for each in args if each.device_kind != _CPU), default=0)
