"""Reads a memory snapshot, and summarizes each device: reserved and used memory, the peak, and what allocated it."""

import io
import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta, Struct, field

from tracekit.analyzers.core import OBJECTS, Int64, decoded

UNKNOWN = "(no stack was recorded)"
_HINT = "Name a file that torch.cuda.memory._dump_snapshot() wrote."
_ROUNDED_TO = 512
_TORCH = ("/torch/", "torch/")

Bytes = Annotated[int, Meta(ge=0, le=2**50)]
Device = Annotated[int, Meta(ge=0, lt=2**31)]
Microseconds = Annotated[int, Meta(ge=0, le=2**62 // 1000)]


class Place(str):
    """ "file:line (function)" of the innermost Python frame outside torch, else of the innermost frame."""


class Frame(Struct, frozen=True):
    """One level of a call stack."""

    filename: str = ""
    line: Int64 = 0
    name: str = ""


class Block(Struct, frozen=True):
    """A part of a segment."""

    size: Bytes
    state: str
    place: Place = field(default=Place(UNKNOWN), name="frames")


class Segment(Struct, frozen=True):
    """Memory that was reserved from the driver in one call."""

    total_size: Bytes
    blocks: list[Block]
    device: Device = 0


class Event(Struct, frozen=True):
    """An allocation, a release, or a failure."""

    action: str
    size: Bytes = 0
    addr: int = 0
    device_free: Bytes = 0
    place: Place = field(default=Place(UNKNOWN), name="frames")
    time_us: Microseconds = 0

    @property
    def block_bytes(self) -> int:
        """Size of the block: an event records the requested size, which the allocator rounds up."""
        return -(-self.size // _ROUNDED_TO) * _ROUNDED_TO


class Snapshot(Struct, frozen=True):
    """The file that torch.cuda.memory._dump_snapshot() writes."""

    segments: list[Segment]
    device_traces: list[list[Event]] = []


class _Blocks(Struct):
    blocks: Any


class _Lists(Struct):
    """The lists of a snapshot, whose content is not looked at."""

    segments: list[_Blocks]
    device_traces: list[Any] = []


class _Plain(pickle.Unpickler):
    """Builds numbers, texts, lists, tuples, dicts and sets. A pickle that names a class or a function is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and nothing in it may be executed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to another file")


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot. Raises InputError if the file is not a snapshot."""
    return decoded(Path(path), partial(_snapshot, path), _HINT)


def _snapshot(path: str | Path, data: bytes) -> Snapshot:
    held: Any = _Plain(io.BytesIO(data)).load()
    lists = msgspec.convert(held, _Lists)
    # A pickle of a few bytes may repeat one list without end, of which each repetition would become a copy.
    OBJECTS.check(sum(len(each.blocks) for each in lists.segments) + sum(map(len, lists.device_traces)), path)
    return msgspec.convert(held, Snapshot, dec_hook=_Places())


class _Places(dict[int, Place]):
    """Converts a call stack to its place. Most blocks and events share their stacks, each of which is read once."""

    def __call__(self, _: type, frames: Any) -> Place:
        known = self.get(id(frames))
        if known is None:
            known = self[id(frames)] = _place(msgspec.convert(frames, list[Frame]))
        return known


def _place(frames: list[Frame]) -> Place:
    python = [frame for frame in frames if frame.filename.endswith(".py")]
    own = [frame for frame in python if not any(part in frame.filename for part in _TORCH)]
    chosen = next(iter(own or python or frames), None)
    return Place(f"{chosen.filename}:{chosen.line} ({chosen.name})" if chosen else UNKNOWN)


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
        reserved=sum(segment.total_size for segment in segments),
        allocated=allocated,
        awaiting_free=active - allocated,
        inactive=sum(inactive),
        largest_inactive=max(inactive, default=0),
        peak=peak,
        before_recording=before,
        at_peak=_sizes_by_place([(event.place, event.block_bytes) for event in live]),
        now=_sizes_by_place(used),
        failures=tuple((event.size, event.device_free) for event in events if event.action == "oom"),
        events=len(events),
        lost_allocations=_lost(events),
    )


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


def _sizes_by_place(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for where, size in sizes:
        total[where] += size
        count[where] += 1
    return tuple((where, size, count[where]) for where, size in total.most_common())


BEFORE, OTHER = "before the recording", "other places"
_PLACES, _POINTS = 7, 600


def bytes_over_time(snapshot: Snapshot, device: int) -> pd.DataFrame:
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
