"""Finds host calls that wait for the device, the part of their time spent waiting, and work that nothing hides."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import (
    BETWEEN_DEVICES,
    LATE_NS,
    PINNED,
    UNRECORDED_WORK,
    WITHIN_DEVICE,
    Covered,
    covered_until,
    is_communication,
    is_host_copy,
    matching,
    take,
)
from tracekit.analyzers.core import Ints, numbers
from tracekit.analyzers.predict.simulation import SYNC_RETURN_NS
from tracekit.analyzers.trace import Trace

_NAMES = re.compile(r"Synchronize|^(?:cuda|hip)(?:Memcpy(?:WithStream)?|Free|HostFree|FreeHost)$")

_NEVER_WAITS = (WITHIN_DEVICE, BETWEEN_DEVICES, PINNED)
"""Copies that the host only launches: between devices, and between device and pinned memory."""

PLAIN_LAUNCH_NS = 5_000
"""Host time of a launch that does not wait."""

_CLOCK_ERROR = 0.01
"""Error of the host's and device's clocks, as a fraction of a call's duration."""


def waiting_calls(
    host: pd.DataFrame,
    threads: npt.NDArray[np.integer],
    start: int,
    stop: int,
    copying: "pd.Series[int] | tuple[()]" = (),
) -> pd.DataFrame:
    """Return the calls of these threads that wait for the device and begin between `start` and `stop`, in order of
    time. `copying` holds the rows of calls that wait for their copies.

    A call inside another call is left out, such as a driver call inside a runtime call.
    """
    times = host.start_ns.to_numpy()
    during = (times >= start) & (times <= stop) & (host.category == "runtime").to_numpy()
    runtime = host[during & host.thread.isin(threads).to_numpy()]
    calls = runtime[waits_for_device(runtime.name) | runtime.index.isin(copying)].sort_values("start_ns")
    begin, thread = calls.start_ns.to_numpy().astype(np.int64), calls.thread.to_numpy()
    end = begin + calls.duration_ns.to_numpy()
    return calls[covered_until(begin, end, thread) < end]


_FREES = re.compile(r"^(?:cuda|hip)Free$|^(?:cu|hip)MemFree(?:_v2)?$|^(?:cu|hip)Mem(?:Unmap|Release)$")


def frees_memory(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return whether each call frees memory of the device."""
    return matching(names, _FREES)


def waits_for_device(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return whether each call waits until the device is done."""
    return matching(names, _NAMES)


def blocking_copies(host: pd.DataFrame, work: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which work items are copies that mostly run before their calls return: those of pageable memory.

    A short copy within the device may also end before a slow host returns from the call, although the host does not
    wait for it.
    """
    launch = work.launch.to_numpy()
    end = take((host.start_ns + host.duration_ns).to_numpy(), launch)
    half = (work.start_ns + work.duration_ns // 2).to_numpy()
    may_wait = (work.category == "memcpy").to_numpy() & ~np.any(
        [matching(work.name, each) for each in _NEVER_WAITS], axis=0
    )
    return may_wait & (launch >= 0) & (end >= half)


def waited_ns(calls: pd.DataFrame, work: pd.DataFrame, launched: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the part of each call's time until the device was done, plus a typical return latency.

    The rest is host time, such as staging a copy from pageable memory or the initialization in a first call. `launched`
    is the time at which the host had launched each item of work.
    """
    begins, durations = calls.start_ns.to_numpy(), calls.duration_ns.to_numpy()
    done = np.append(np.sort((work.start_ns + work.duration_ns).to_numpy()), 0)
    ends = begins + durations + (_CLOCK_ERROR * durations).astype(np.int64)
    latest = done[np.searchsorted(done[:-1], ends, side="right") - 1]
    waited = np.where(latest > begins, np.minimum(durations, latest - begins + SYNC_RETURN_NS), 0)
    copying = work.launch.isin(calls.index) & (work.category == "memcpy")
    copies = pd.Series(launched[copying.to_numpy()]).groupby(work.launch[copying].to_numpy())
    began = copies.min().reindex(calls.index).to_numpy()
    beside = np.minimum(durations, begins + durations - np.maximum(began, begins))
    return np.where(np.isnan(began), waited, np.maximum(waited, np.nan_to_num(beside))).astype(np.int64)


def staged_ns(host: pd.DataFrame, work: pd.DataFrame, blocks: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return for how long the call of each of these copies goes on after it: the driver moves the last part from its
    own memory to pageable memory, whose pages may be new."""
    end = take((host.start_ns + host.duration_ns).to_numpy(), work.launch.to_numpy())
    after = end - (work.start_ns + work.duration_ns).to_numpy() - SYNC_RETURN_NS
    return np.where(blocks & ~work.duplicated("launch", keep="last"), np.maximum(after, 0), 0).astype(np.float64)


def idle_before(everything: pd.DataFrame, work: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the idle time in nanoseconds of the device before each item of work, including work of earlier steps."""
    device = everything[everything.device == work.device.iloc[0]].sort_values("start_ns", kind="stable")
    start, duration = (device[name].to_numpy().astype(np.int64) for name in ("start_ns", "duration_ns"))
    busy_until = np.maximum.accumulate(np.append(0, (start + duration)[:-1]))
    return pd.Series(np.maximum(start - busy_until, 0), index=device.index).reindex(work.index).to_numpy()


def queued_ns(host: pd.DataFrame, work: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return for how long the device was idle before each item although it was launched long before, and is no copy
    that the host prepares. Nothing that the host does shortens this. The launching call (a row of `host`) is host time,
    however long it takes."""
    launched = work.delay_ns.to_numpy() - take(host.duration_ns.to_numpy(), work.launch.to_numpy())
    late = np.minimum(work.gap_ns.to_numpy(), launched).astype(np.float64)
    return np.where((late >= LATE_NS) & ~is_host_copy(work.name), late, 0.0)


def launched_ns(
    trace: Trace, work: pd.DataFrame, step_start: int, idle_before: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the time at which the host had launched each item.

    A copy that its call waits for is launched before the call returns. Time in the call before such a copy begins is
    host time only while the device is idle. A graph may begin before the call that launches it returns. If the trace
    lacks the launch of an item, the last known launch among items that started before is used: its own host time is
    unknown, and its device start would make the host wait. Work that is not recorded runs right before the item whose
    launch it delays, and counts as launched with it.
    """
    launch = work.launch.to_numpy()
    start, duration = (take(trace.host[name].to_numpy(), launch) for name in ("start_ns", "duration_ns"))
    waits = take(waits_for_device(trace.host.name), launch, absent=False) | blocking_copies(trace.host, work)
    staged = np.minimum(work.start_ns.to_numpy() - LAUNCH_LATENCY_NS - start, idle_before)
    launched = np.where(waits, start + np.maximum(staged, 0), start + duration)
    launched = np.where(launch >= 0, np.minimum(launched, _graph_begins(work)), step_start)
    launched = np.where(launch >= 0, launched, np.maximum.accumulate(np.maximum(launched, step_start)))
    unrecorded = (work.name == UNRECORDED_WORK).to_numpy()
    return np.where(unrecorded, np.append(launched[1:], launched[-1:]), launched)


def _graph_begins(work: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return for each node of a graph when the first node of its launch began; the largest integer for other work."""
    first = work["start_ns"].groupby(work["launch"]).transform("min").to_numpy()
    return np.where(work["graph"].to_numpy() >= 0, first, np.iinfo(np.int64).max)


_NUMBERS = numbers(__file__)
LAUNCH_LATENCY_NS = _NUMBERS["launch_latency_ns"]
"""Default launch latency if no work was launched to an idle device."""
QUEUED_GAP_NS = 1_000
_MOST_LATENCY_NS = 30_000
"""Longest delay on an idle device that counts as launch latency. Later kernels waited for an event or a copy."""
_QUEUED_NS = 20_000
"""Delay after its launch beyond which work counts as queued."""


def launch_latency_ns(work: pd.DataFrame, host: pd.DataFrame) -> float:
    """Return the median time from the return of a launching call (a row of `host`) to the start of its work on an idle
    device. The call itself is host time."""
    idle = work[(work.delay_ns > 0) & (work.gap_ns >= work.delay_ns) & (work.delay_ns < _MOST_LATENCY_NS)]
    after = idle.delay_ns - take(host.duration_ns.to_numpy(), idle.launch.to_numpy())
    return float(after.clip(lower=0).median()) if len(idle) else LAUNCH_LATENCY_NS


def queued_gap_ns(work: pd.DataFrame) -> float:
    """Return the usual idle time before work that was queued before the device became free.

    It is the median, or the mean if most of the work are nodes of graphs: they never wait for the host, and the gaps
    before some of them are longer for other reasons.
    """
    queued = work[work.delay_ns > _QUEUED_NS]
    if not len(queued):
        return QUEUED_GAP_NS
    nodes = work[(work.graph >= 0) & work.duplicated(["launch", "graph"])]
    if 2 * len(nodes) > len(work):
        return float(nodes.gap_ns.clip(upper=_MOST_LATENCY_NS).mean())
    return min(float(queued.gap_ns.median()), QUEUED_GAP_NS)


def exposed_shares(work: pd.DataFrame, first: Ints) -> npt.NDArray[np.float64]:
    """Return the fraction of each op's device time in copies and collectives during which nothing is computed."""
    moves = is_communication(work.name) | (work.category != "kernel").to_numpy()
    start = work.start_ns.to_numpy().astype(np.int64)
    end = start + work.duration_ns.to_numpy()
    beside = Covered(start[~moves], end[~moves]).within(start, end) if not moves.all() else np.zeros(len(work))
    busy = work.busy_ns.to_numpy(dtype=float)
    alone = np.where(moves, np.minimum(end - start - beside, busy), 0.0)
    return np.add.reduceat(alone, first) / np.maximum(np.add.reduceat(busy, first), 1.0)


def waiting(
    calls: pd.DataFrame, waited: npt.NDArray[np.int64], launched: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the host time spent waiting in calls before each launch, and whether a wait follows each launch."""
    ends = (calls.start_ns + calls.duration_ns).to_numpy()
    total = np.concatenate([[0], np.cumsum(waited)])
    return total[np.searchsorted(ends, launched, side="right")], followed(calls, launched)


def followed(calls: pd.DataFrame, launched: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return whether one of the calls ends between each launch and the next."""
    follows = np.zeros(len(launched), dtype=bool)
    after = np.searchsorted(launched, (calls.start_ns + calls.duration_ns).to_numpy(), side="right") - 1
    follows[after[after >= 0]] = True
    return follows


def fraction_until_wait(
    calls: pd.DataFrame, launched: npt.NDArray[np.int64], host_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the fraction of the host time between each launch and the next that precedes the first wait."""
    begins = np.append(np.sort(calls.start_ns.to_numpy()), np.iinfo(np.int64).max)
    ahead = begins[np.searchsorted(begins[:-1], launched)] - launched
    after = np.append(host_ns[1:], 0)
    return np.where((ahead > PLAIN_LAUNCH_NS) & (ahead <= after), ahead / np.maximum(after, 1), 0.0)
