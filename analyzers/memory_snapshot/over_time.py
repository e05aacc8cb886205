"""A snapshot's events over time, by the place in the code that allocated."""

from collections import Counter

import numpy as np
import pandas as pd

from tracekit.analyzers.memory_snapshot.read import Event, Snapshot

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
