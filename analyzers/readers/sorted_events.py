"""Sorts the events of one chunk by kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracekit.analyzers.readers.categories import DEVICE_KINDS, HOST_KINDS, kind_of
from tracekit.analyzers.readers.events import PHASES, Event
from tracekit.analyzers.readers.memory_events import MEMORY


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
