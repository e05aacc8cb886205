"""Turn slices of tracks into events as Kineto writes them."""

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import msgspec
from msgspec import Raw

from tracekit.analyzers.trace.kineto.events import Event
from tracekit.analyzers.trace.perfetto.packets import Arguments, Interned, arguments, text

UNENDED = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """The beginning (with the slice's number) or the end (-1) of a slice, in the order of the file."""

    track: int
    time_ns: int
    slice: int = -1


def end_times(marks: Sequence[Mark], slices: int) -> tuple[list[int], int]:
    """Return the end of each of `slices` slices (UNENDED for none), and the number of ends without a beginning.

    A recorder writes marks in order of time, and slices nest on their track. PyTorch exports all beginnings of a kind,
    and then all ends in the same order; a slice may begin in the nanosecond in which the previous one ends.
    """
    ends = [UNENDED] * slices
    left: list[Mark] = []
    runs = [list(run) for _, run in groupby(marks, key=lambda mark: mark.slice >= 0)]
    for begins, after in pairwise([*runs, []]):
        if begins[0].slice < 0:
            continue
        exported = _exported(begins, after)
        for begin, end in zip(begins, after, strict=False):
            if begin.track in exported:
                ends[begin.slice] = end.time_ns
        left += [mark for mark in (*begins, *after) if mark.track not in exported]
    if runs and runs[0][0].slice < 0:
        left = runs[0] + left
    return ends, _nest(left, ends)


def _exported(begins: Sequence[Mark], after: Sequence[Mark]) -> set[int]:
    """Return the tracks on which the k-th end belongs to the k-th beginning, because their marks are not in order of
    time."""
    if len(begins) != len(after) or any(
        begin.track != end.track or end.time_ns < begin.time_ns for begin, end in zip(begins, after, strict=True)
    ):
        return set()
    times: dict[int, list[int]] = defaultdict(list)
    for mark in (*begins, *after):
        times[mark.track].append(mark.time_ns)
    return {track for track, of_track in times.items() if any(a > b for a, b in pairwise(of_track))}


def _nest(marks: Sequence[Mark], ends: list[int]) -> int:
    """Pair each beginning with the end at its depth, in order of time, and return the number of unpaired ends."""
    open_slices: dict[int, list[int]] = defaultdict(list)
    over = 0
    for mark in sorted(marks, key=lambda mark: mark.time_ns):
        if mark.slice >= 0:
            open_slices[mark.track].append(mark.slice)
        elif open_slices[mark.track]:
            ends[open_slices[mark.track].pop()] = mark.time_ns
        else:
            over += 1
    return over


_OP_ARGUMENTS = frozenset(("Input Dims", "Input type", "Sequence number", "Fwd thread id", "Concrete Inputs"))
_PROFILER_ARGUMENTS = frozenset(("External id", "Ev Idx", "Record function id"))
_OP_NAME = re.compile(r"\w+::\w|\w*Backward\d*\Z|autograd::")
_DEVICE_TRACK = re.compile(r"stream|GPU", re.IGNORECASE)
_DRIVER = re.compile(r"cu[A-Z]|hip[A-Z]\w*Module")
_OVERHEAD, _OVERHEAD_PID = "Overhead", -1


def inferred_category(name: str, arguments: Collection[str], pid: int | str, track: str, process: str) -> str:
    """Return the category of an event, from its arguments, its name, its process, and the names of its track and
    process."""
    if pid == _OVERHEAD_PID or _OVERHEAD in (process, track):
        return "overhead"
    if "Python id" in arguments or "Python module id" in arguments or "Python parent id" in arguments:
        return "python_function"
    if "cuda_sync_kind" in arguments:
        return "cuda_sync"
    if "cbid" in arguments:
        return "cuda_driver" if _DRIVER.match(name) else "cuda_runtime"
    if "grid" in arguments or "registers per thread" in arguments:
        return "kernel"
    if "bytes" in arguments and "stream" in arguments:
        return "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    if _DEVICE_TRACK.match(track):
        return "gpu_user_annotation"
    if not _PROFILER_ARGUMENTS.isdisjoint(arguments) or not _OP_ARGUMENTS.isdisjoint(arguments):
        is_op = not _OP_ARGUMENTS.isdisjoint(arguments) or _OP_NAME.match(name)
        return "cpu_op" if is_op else "user_annotation"
    return ""


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


_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Slice:
    """A slice at its beginning. Its thread is known once all tracks are."""

    track: int
    time_ns: int
    category: str
    name: str
    arguments: Raw
    keys: tuple[str, ...]
    """Names of the arguments, from which the category of a slice without one is inferred."""


def slice_of(one: Any, track: int, time_ns: int, interned: Interned) -> Slice:
    """Return the slice that a TrackEvent begins."""
    names = [*map(text, one.categories), *(interned.categories.get(number, "") for number in one.category_iids)]
    name = text(one.name) or interned.names.get(one.name_iid, "")
    values = arguments(one.debug_annotations, interned) if one.debug_annotations else {}
    return Slice(track, time_ns, names[0] if names else "", name, encoded(values), () if names else tuple(values))


def events(slices: Sequence[Slice], ends: Sequence[int], tracks: Tracks, last_ns: int) -> list[Event]:
    """Return the events of slices with their ends. A slice without an end lasts until `last_ns`."""
    lanes = {uuid: _Lane(uuid, tracks) for uuid in {each.track for each in slices}}
    return [
        lanes[one.track].event(one, (last_ns if end == UNENDED else end) - one.time_ns)
        for one, end in zip(slices, ends, strict=True)
    ]


def event(name: str, category: str, thread: Thread, start_ns: int, duration_ns: int, arguments: Raw) -> Event:
    """Return a complete event."""
    sign, (whole, rest) = b"-" if start_ns < 0 else b"", divmod(abs(start_ns), 1000)
    return Event(
        ph="X",
        cat=category,
        name=name,
        pid=thread[0],
        tid=thread[1],
        ts=Raw(b"%s%d.%03d" % (sign, whole, rest)),
        dur=duration_ns / 1000,
        args=arguments,
    )


def encoded(values: Arguments) -> Raw:
    """Return arguments as JSON."""
    return Raw(_encode(values))


class _Lane:
    """Values that the events of one track share."""

    def __init__(self, uuid: int, tracks: Tracks) -> None:
        self._thread, self._name, self._process = tracks.thread(uuid), tracks.name(uuid), tracks.process_name(uuid)

    def event(self, one: Slice, duration_ns: int) -> Event:
        category = one.category or inferred_category(one.name, one.keys, self._thread[0], self._name, self._process)
        return event(one.name, category, self._thread, one.time_ns, duration_ns, one.arguments)
