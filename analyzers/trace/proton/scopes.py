"""Defines what Proton records about a kernel launch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from tracekit.analyzers.trace.trace import HOST, DeviceProperties

ROOT = "ROOT"
TRANSPARENT = frozenset(("<captured_at>",))
"""Scopes that Proton adds between the replay of a graph and the scopes of its capture."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that ran, and the scopes (or Python functions) in which it was launched, outermost first."""

    scopes: tuple[str, ...]
    name: str
    start_ns: int
    duration_ns: int
    device: int = -1
    stream: int = -1


@dataclass
class Profile:
    """The launches of a profile. `summed` counts launches of which only sums are known, `unreadable` events that are
    not launches. `damage` says why the profile ends early."""

    launches: list[Launch] = field(default_factory=list)
    devices: tuple[DeviceProperties, ...] = ()
    summed: int = 0
    unreadable: int = 0
    damage: str = ""


def below_root(names: list[str]) -> tuple[str, ...]:
    """Return the scopes without Proton's root."""
    return tuple(name for name in (names[1:] if names[:1] == [ROOT] else names) if name not in TRANSPARENT)


@dataclass(slots=True)
class _Row:
    thread: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    launch: int = -1


def host_table(launches: Sequence[Launch]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the host table, and the names of its threads, one for each stream.

    A scope begins with its first kernel and ends with its last, because nothing else is recorded about it. Each launch
    is an op named like its kernel, whose external id is the number of the launch.
    """
    streams = sorted({(launch.device, launch.stream) for launch in launches})
    rows: list[_Row] = []
    for thread, stream in enumerate(streams):
        numbers = [number for number, each in enumerate(launches) if (each.device, each.stream) == stream]
        rows += _stream_rows(thread, launches, numbers)
    order = {"range": 0, "op": 1}
    rows.sort(key=lambda row: (row.thread, row.start_ns, -row.end_ns, order[row.category]))
    return _table(rows), tuple(f"stream {number}" if number >= 0 else "kernels" for _, number in streams)


def _stream_rows(thread: int, launches: Sequence[Launch], numbers: Sequence[int]) -> list[_Row]:
    rows: list[_Row] = []
    opened: list[_Row] = []
    for number in numbers:
        launch = launches[number]
        same = _shared(opened, launch.scopes)
        for left in opened[same:]:
            left.end_ns = min(left.end_ns, launch.start_ns)
        del opened[same:]
        opened += [_Row(thread, name, "range", launch.start_ns, 0) for name in launch.scopes[same:]]
        end = launch.start_ns + launch.duration_ns
        for around in opened:
            around.end_ns = max(around.end_ns, end)
        rows += opened[same:]
        rows.append(_Row(thread, launch.name, "op", launch.start_ns, launch.start_ns, number))
    return rows


def _shared(opened: Sequence[_Row], scopes: Sequence[str]) -> int:
    """Return how many of the open ranges are also scopes of the next launch."""
    same = 0
    for row, name in zip(opened, scopes, strict=False):
        if row.name != name:
            break
        same += 1
    return same


def _table(rows: Sequence[_Row]) -> pd.DataFrame:
    return HOST.partial(
        {
            "start_ns": [row.start_ns for row in rows],
            "duration_ns": [row.end_ns - row.start_ns for row in rows],
            "thread": [row.thread for row in rows],
            "category": [row.category for row in rows],
            "name": [row.name for row in rows],
            "external_id": [row.launch for row in rows],
        }
    )
