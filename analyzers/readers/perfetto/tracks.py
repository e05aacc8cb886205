"""Finds the process and thread of each track."""

from dataclasses import dataclass, field
from typing import Any

from tracekit.analyzers.readers.perfetto.message_types import text

_DEEPEST = 32
Thread = tuple[int | str, int | str]


@dataclass
class Tracks:
    """Track descriptors by uuid."""

    threads: dict[int, Thread] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)

    def add(self, track: Any) -> None:
        """Add a descriptor. A repeated descriptor replaces the values that it contains."""
        uuid = track.uuid
        if track.HasField("thread"):
            self.threads[uuid] = (track.thread.pid, track.thread.tid)
        if track.HasField("process"):
            self.processes[uuid] = track.process.pid
        name = track.name or track.static_name or track.thread.thread_name or track.process.process_name
        if name:
            self.names[uuid] = text(name)
        if track.parent_uuid:
            self.parents[uuid] = track.parent_uuid

    def thread(self, uuid: int) -> Thread:
        """Return pid and tid of the thread that a track belongs to.

        Tracks below a thread belong to it. A track without a thread counts as a separate thread.
        """
        above = self._lineage(uuid)
        for each in above:
            if each in self.threads:
                return self.threads[each]
        process = next((self.processes[each] for each in above if each in self.processes), "")
        return process, self.names.get(uuid) or f"track {uuid}"

    def name(self, uuid: int) -> str:
        """Return the name of a track, or of the nearest one above it that has one."""
        return next((self.names[each] for each in self._lineage(uuid) if each in self.names), "")

    def process_name(self, uuid: int) -> str:
        """Return the name of the outermost track around it."""
        return self.names.get(self._lineage(uuid)[-1], "")

    def _lineage(self, uuid: int) -> list[int]:
        lineage = [uuid]
        while uuid in self.parents and len(lineage) < _DEEPEST:
            uuid = self.parents[uuid]
            lineage.append(uuid)
        return lineage
