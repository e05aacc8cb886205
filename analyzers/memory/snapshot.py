"""Summarizes a snapshot by device: reserved and used memory, the peak, and the code that allocated it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pandas as pd

from tracekit.analyzers.memory.snapshot_file import Event, Segment, Snapshot

_FREE = "free_completed"


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of one device."""

    device: int
    reserved: int
    """Memory that the allocator had reserved from the driver at the time of the snapshot."""
    allocated: int
    awaiting_free: int
    """Released memory that a stream may still use."""
    inactive: int
    """Reserved memory that is unused. It is fragmented if the allocator cannot return it to the driver."""
    largest_inactive: int
    peak: int
    """Peak of allocated bytes while events were recorded; 0: none were recorded."""
    before_recording: int
    """Part of the peak that was allocated before recording began. Only its size is known."""
    at_peak: tuple[tuple[str, int, int], ...]
    """(place in the code, bytes, allocations) at the peak, largest first."""
    now: tuple[tuple[str, int, int], ...]
    """The same at the time of the snapshot."""
    failures: tuple[tuple[int, int], ...]
    """Failed allocations: requested bytes, and free bytes of the device."""
    events: int
    lost_allocations: int
    """Number of releases of memory that was allocated before recording began."""


def summarize(snapshot: Snapshot) -> tuple[DeviceMemory, ...]:
    """Return the memory of each device for which the snapshot has segments or events."""
    segments: dict[int, list[Segment]] = defaultdict(list)
    for segment in snapshot.segments:
        segments[segment.device].append(segment)
    events = {device: recorded for device, recorded in enumerate(snapshot.device_traces) if recorded}
    return tuple(_device(each, segments[each], events.get(each, [])) for each in sorted({*segments, *events}))


def _device(device: int, segments: Sequence[Segment], events: Sequence[Event]) -> DeviceMemory:
    blocks = [block for segment in segments for block in segment.blocks]
    inactive = [block.size for block in blocks if block.state == "inactive"]
    active = sum(block.size for block in blocks if block.state != "inactive")
    allocated = sum(block.size for block in blocks if block.state == "active_allocated")
    peak, before, live = _peak(events, active)
    used = [(block.place, block.size) for block in blocks if block.state == "active_allocated"]
    return DeviceMemory(
        device=device,
        reserved=_reserved(segments),
        allocated=allocated,
        awaiting_free=active - allocated,
        inactive=sum(inactive),
        largest_inactive=max(inactive, default=0),
        peak=peak,
        before_recording=before,
        at_peak=_by_place([(event.place, event.block_bytes) for event in live]),
        now=_by_place(used),
        failures=tuple((event.size, event.device_free) for event in events if event.action == "oom"),
        events=len(events),
        lost_allocations=_lost(events),
    )


def _reserved(segments: Sequence[Segment]) -> int:
    return sum(segment.total_size for segment in segments)


def _peak(events: Sequence[Event], active: int) -> tuple[int, int, list[Event]]:
    """Return the peak, the part of it that existed before the recording, and the recorded allocations that made up the
    rest."""
    moves = [event for event in events if event.action in ("alloc", _FREE)]
    if not moves:
        return 0, 0, []
    level = list(accumulate(event.block_bytes if event.action == "alloc" else -event.block_bytes for event in moves))
    before = active - level[-1]
    highest = level.index(max(level))
    live: dict[int, Event] = {}
    for event in moves[: highest + 1]:
        if event.action == "alloc":
            live[event.addr] = event
        else:
            live.pop(event.addr, None)
    peak = before + level[highest]
    known = sum(event.block_bytes for event in live.values())
    return max(peak, active), max(0, peak - known), list(live.values())


def _lost(events: Sequence[Event]) -> int:
    allocated: set[int] = set()
    lost = 0
    for event in events:
        if event.action == "alloc":
            allocated.add(event.addr)
        elif event.action == _FREE:
            lost += event.addr not in allocated
            allocated.discard(event.addr)
    return lost


def _by_place(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for where, size in sizes:
        total[where] += size
        count[where] += 1
    return tuple((where, size, count[where]) for where, size in total.most_common())


BEFORE, OTHER = "before the recording", "other places"
_PLACES, _POINTS = 7, 600


def over_time(snapshot: Snapshot, device: int) -> pd.DataFrame:
    """Return bytes over time: `time_ns` after the first event, and a column for each of the largest places.

    Empty if the snapshot has no timed events of the device.
    """
    events = snapshot.device_traces[device] if device < len(snapshot.device_traces) else []
    moves = [event for event in events if event.action in ("alloc", "free_completed") and event.time_us]
    if not moves:
        return pd.DataFrame()
    sizes: Counter[str] = Counter()
    for event in moves:
        if event.action == "alloc":
            sizes[event.place] += event.block_bytes
    largest = [where for where, _ in sizes.most_common(_PLACES)]
    names = [BEFORE, *largest, OTHER]
    changes = _changes(moves, largest)
    levels = changes.cumsum(axis=0)
    levels[:, 0] -= min(0, levels[:, 0].min())
    times = np.array([event.time_us for event in moves], dtype=np.int64) * 1000
    step = max(1, len(times) // _POINTS)
    total = levels.sum(axis=1)
    kept = np.array([low + int(total[low : low + step].argmax()) for low in range(0, len(total), step)])
    return pd.DataFrame({"time_ns": times[kept] - times[0]} | {name: levels[kept, i] for i, name in enumerate(names)})


def _changes(moves: list[Event], largest: list[str]) -> np.ndarray:
    """Return, for each event, the bytes that each place gains. Frees of unknown blocks belong to memory from before the
    recording."""
    changes, live = np.zeros((len(moves), len(largest) + 2)), dict[int, tuple[int, int]]()
    for row, event in enumerate(moves):
        if event.action == "alloc":
            where = event.place
            column = 1 + (largest.index(where) if where in largest else len(largest))
            live[event.addr] = column, event.block_bytes
            changes[row, column] = event.block_bytes
        else:
            column, size = live.pop(event.addr, (0, event.block_bytes))
            changes[row, column] = -size
    return changes
