"""What a rank's trace says of the rank alone: its collectives (on a device kernels, on a CPU ranges of libraries), and
its own time, as if no other rank delayed it.

Own time has two components. The device's own time excludes exposed communication, and the time in which it was idle
because the host had not launched its next work. The host's own time excludes calls in which it waits for the device. A
rank reaches a point in own time when its device has done the work before that point, and no earlier than each launch
plus the device's work since that launch. This keeps the host's own time visible if the host runs ahead of a device that
waits for other ranks.
"""

import json
import re
from dataclasses import dataclass
from itertools import starmap
from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import Covered, Host, Nest, is_communication, is_copy_to_host, take
from tracekit.analyzers.core import Ints
from tracekit.analyzers.cost import kind_of, tensors
from tracekit.analyzers.ranks.own_time import Occupied
from tracekit.analyzers.trace import RECORDED_AS, recorded_dims

_KINDS = (
    ("all-reduce", re.compile(r"all_?reduce|cross_device_reduce|(?:one|two)_?shot|multimem", re.IGNORECASE)),
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all-gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all-to-all", re.compile(r"all_?to_?all|deep_?ep|dispatch|combine", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast|scatter", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce|gather", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
    ("send", re.compile(r"(?<![a-z])i?send(?!_?recv)", re.IGNORECASE)),
    ("receive", re.compile(r"(?<![a-z])i?recv", re.IGNORECASE)),
)
"""Kinds by name; the first match decides. A kernel that both sends and receives has a name with neither."""


def kind_by_name(name: str) -> str:
    """Return the kind: all-reduce for ncclDevKernel_AllReduce_..., gloo:all_reduce and c10d::allreduce_; "" if
    unknown."""
    text = name.split("(")[0]
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")


def calls_of_device(host: Host, work: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of RANK_CALLS, without own times, of the rows of WORK that communicate."""
    calls = work[is_communication(work["name"])].sort_values("start_ns", kind="stable")
    start, launch = calls["start_ns"].to_numpy(np.int64), calls["launch"].to_numpy()
    asked = _asked(host, calls["op"].to_numpy(), launch)
    named = np.array([kind_by_name(str(name)) for name in calls["name"].cat.categories], dtype=object)
    by_name = named[calls["name"].cat.codes.to_numpy()] if len(named) else np.array([], dtype=object)
    return pd.DataFrame(
        {
            "step": calls["step"].to_numpy(),
            **asked,
            "kind": np.where(asked["kind"] == "", by_name, asked["kind"]),
            "name": calls["name"].to_numpy(),
            "phase": calls["phase"].to_numpy(),
            "stream": calls["stream"].to_numpy(),
            "start_ns": start,
            "end_ns": start + calls["duration_ns"].to_numpy(),
            "host_start_ns": host.start_of(launch),
        }
    )


def _asked(host: Host, op: Ints, launch: Ints) -> dict[str, npt.NDArray]:
    """Return what the host records about each call: in its op or, without an op, in the range around its launch."""
    around = _range_around(host, launch)
    recorded = np.append((host.name == RECORDED_AS).to_numpy(), False)[op]
    sources = (np.where(recorded, op, around), around)
    return _columns(list(starmap(_either, zip(*(_calls_of_rows(host.table, rows) for rows in sources), strict=True))))


_CELLS = ("name", "values", "shapes", "dtypes")


Said = tuple[str, int, str, int, str, int]
"""Group, sequence number, kind, bytes, dtype and peer."""


def _calls_of_rows(host: pd.DataFrame, rows: Ints) -> list[Said]:
    return [_said(*cells) for cells in zip(*(_cells(host, name, rows) for name in _CELLS), strict=True)]


def _either(first: Said, second: Said) -> Said:
    """Return the values of the op, or those of the range where the op has none."""
    size, element = first[3:5] if first[3] else second[3:5]
    return (*first[:2], first[2] or second[2], size, element, first[5])


def _columns(said: list[Said]) -> dict[str, npt.NDArray]:
    columns = list(zip(*said, strict=True)) or [()] * 6
    texts = {name: np.array(columns[at], dtype=object) for name, at in (("group", 0), ("kind", 2), ("dtype", 4))}
    numbers = {name: np.array(columns[at], dtype=np.int64) for name, at in (("sequence", 1), ("bytes", 3), ("peer", 5))}
    return {**texts, **numbers}


def _cells(host: pd.DataFrame, column: str, rows: Ints) -> list[str]:
    codes = take(host[column].cat.codes.to_numpy().astype(np.int64), rows)
    categories = host[column].cat.categories
    return [str(categories[code]) if code >= 0 else "" for code in codes.tolist()]


def _range_around(host: Host, launch: Ints) -> Ints:
    """Return the row of the communication library's range that is open on the thread at each launch."""
    ranges = Nest(host.table, host.is_range & host.communicates)
    return np.where(launch >= 0, ranges.around(host.thread_of(launch), host.start_of(launch)), -1)


def _said(name: str, values: str, shapes: str, types: str) -> Said:
    try:
        called, sent, received, element, _, group, sequence, source, target = json.loads(values)
        dtype = tensors.find(element)
        size = max(int(sent), int(received)) * (dtype.bytes if dtype else 0)
        kind = kind_of(called) or kind_by_name(called)
        peer = int(target) if kind == "send" else int(source) if kind == "receive" else -1
        return group, int(sequence), kind, size, element, peer
    except (ValueError, TypeError, AttributeError):
        size, element = _first_tensor(shapes, types)
        return "", -1, "" if name == RECORDED_AS else kind_by_name(name), size, element, -1


def _first_tensor(shapes: str, types: str) -> tuple[int, str]:
    """Return the bytes and the dtype of the first tensor."""
    try:
        element = json.loads(types)[0]
        dtype = tensors.find(element)
    except (ValueError, TypeError, IndexError):
        return 0, ""
    shape = recorded_dims(shapes, 0)
    return (prod(shape) * dtype.bytes if shape else 0, element) if dtype else (0, "")


def calls_of_cpu(host: Host, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of RANK_CALLS, without own times, for the ranges of a library that communicates
    between CPUs."""
    table, rows = host.table, np.flatnonzero(host.is_range & host.communicates)
    start = host.start[rows].astype(np.int64)
    order = np.argsort(start, kind="stable")
    rows, start = rows[order], start[order]
    said = _columns(_calls_of_rows(table, rows))
    begin = steps["start_ns"].to_numpy()
    at = np.searchsorted(begin, start, "right") - 1
    inside = (at >= 0) & (start < np.append(begin + steps["wall_ns"].to_numpy(), 0)[at])
    return pd.DataFrame(
        {
            "step": np.where(inside, np.append(steps["step"].to_numpy(), -1)[at], -1),
            **said,
            "name": table["name"].to_numpy()[rows],
            "phase": np.full(len(rows), "", dtype=object),
            "stream": host.thread[rows],
            "start_ns": start,
            "end_ns": start + host.duration[rows],
            "host_start_ns": start,
        }
    )


NEVER = -1
_UNKNOWN = int(np.iinfo(np.int64).min // 2)


@dataclass(frozen=True, eq=False)
class Alone:
    """The own times of a rank's device and host, from the base time of its trace, in ns."""

    occupied: Occupied
    starved: Covered
    """When the device was idle because the host had not launched its next work."""
    waited: Covered
    """When the host waited for the device."""
    sync: Ints
    """Ends of the host's waits."""
    delay: Ints
    """Delay of the host relative to its own time after each wait; the additional first element is the time before any
    wait."""
    start: Ints
    """Starts of the device's work."""
    behind: Ints
    """Delay of the device relative to its own work since each start; with an additional first element, as above."""

    def device_until(self, time: Ints) -> Ints:
        """Return the device's own time from the base time to each of `time`."""
        return self.occupied.own_until(time) - self.starved.within(np.minimum(time, 0), time)

    def own_until(self, time: Ints) -> Ints:
        """Return the rank's own time to each of `time`, by its device."""
        return self.device_until(time) + self.behind[np.searchsorted(self.start, time, "right")]

    def step_until(self, time: Ints) -> Ints:
        """Return the rank's own time to each of `time`, by its device and its host."""
        host = (
            time - self.waited.within(np.minimum(time, 0), time) + self.delay[np.searchsorted(self.sync, time, "right")]
        )
        return np.maximum(self.own_until(time), host)

    def behind_at_sync(self, since: Ints, until: Ints) -> Ints:
        """Return how far the device was behind at the last wait of the host in each span; NEVER without a wait."""
        last = np.searchsorted(self.sync, until, "right") - 1
        time = np.append(self.sync, 0)[last]
        inside = (last >= 0) & (time > since)
        return np.where(inside, self.behind[np.searchsorted(self.start, time, "right")], NEVER)


def host_clocks(occupied: Occupied) -> Alone:
    """Return the clocks of a rank that computes on its host, which has a single clock."""
    nothing = np.zeros(0, dtype=np.int64)
    none, zero = Covered(nothing, nothing), np.zeros(1, dtype=np.int64)
    return Alone(occupied, none, none, nothing, zero + _UNKNOWN, nothing, zero)


def device_clocks(host: Host, work: pd.DataFrame, occupied: Occupied) -> Alone:
    """Return the clocks from the work of one device, rows of WORK, and the host table."""
    work = work.sort_values("start_ns", kind="stable")
    start, delay = work["start_ns"].to_numpy(np.int64), work["delay_ns"].to_numpy(np.int64)
    free = np.r_[0, np.maximum.accumulate(start + work["duration_ns"].to_numpy())[:-1]][: len(start)]
    known = delay >= 0
    issued = np.where(known, start - delay, np.minimum(free, start))
    late = known & (issued > free)
    starved = Covered(free[late], np.minimum(issued, start)[late])
    waited, sync = _waits(host, work, occupied.anything)
    clocks = Alone(occupied, starved, waited, sync, np.zeros(0, np.int64), start, np.zeros(0, np.int64))
    lead = issued - waited.within(np.minimum(issued, 0), issued) - clocks.device_until(np.minimum(free, start))
    lead = np.where(known, lead, _UNKNOWN)
    delay, behind = _followed(clocks, issued, lead)
    return Alone(occupied, starved, waited, sync, delay, start, behind)


def _waits(host: Host, work: pd.DataFrame, busy: Covered) -> tuple[Covered, Ints]:
    """Return when threads that launch work waited for the busy device, and the ends of these waits in order.

    Threads wait in calls that synchronize, and in copies to the host.
    """
    launch = work["launch"].to_numpy()
    waits = host.waits & np.isin(host.thread, np.unique(host.thread[launch[launch >= 0]]))
    waits[launch[(launch >= 0) & is_copy_to_host(work["name"])]] = True
    calls = Covered(host.start[waits], (host.start + host.duration)[waits])
    return calls.common(busy), calls.spans()[1]


def _followed(clocks: Alone, issued: Ints, lead: Ints) -> tuple[Ints, Ints]:
    """Return `delay` and `behind` after each launch and each wait of the host, in order.

    Work that was launched between two waits begins after `lead` plus the delay at that time. After a wait, the host
    continues when the device has ended its work.
    """
    part = np.searchsorted(clocks.sync, issued, "right")
    most = np.full(len(clocks.sync) + 1, _UNKNOWN)
    np.maximum.at(most, part, lead)
    device = (
        clocks.device_until(clocks.sync) - clocks.sync + clocks.waited.within(np.zeros_like(clocks.sync), clocks.sync)
    )
    delays, later, behind = [0], 0, 0
    for largest, done in zip(most.tolist(), device.tolist(), strict=False):
        behind = max(behind, largest + later)
        later = max(later, done + behind)
        delays.append(later)
    delay = np.array(delays, dtype=np.int64)
    return delay, np.r_[0, np.maximum.accumulate(np.maximum(lead + delay[part], 0))]
