"""The times in which a rank computes, communicates and copies, and its time without exposed communication."""

import re
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import (
    LOADING,
    NO_LAYER,
    Covered,
    Host,
    Launching,
    Nest,
    attribute,
    host_activity,
    innermost_segments,
    is_communication,
    issued,
    judge,
    matching,
    nearest,
    run_device,
    timeline,
    work_table,
)
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.trace import Trace, release_freed

Spans = tuple[Ints, Ints]
"""Starts and ends."""


@dataclass(frozen=True, eq=False)
class Occupied:
    """The times in which a rank computes; computes or copies; communicates; computes or communicates; or does any."""

    compute: Covered
    working: Covered
    communication: Covered
    either: Covered
    anything: Covered

    def own_until(self, time: Ints) -> Ints:
        """Return the time without exposed communication from the base time to each of `time`."""
        start = np.minimum(time, 0)
        return time - self.either.within(start, time) + self.compute.within(start, time)

    def parts(self, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the columns of RANK_STEPS for intervals of time."""
        compute, communication, either, anything = (
            covered.within(begin, end) for covered in (self.compute, self.communication, self.either, self.anything)
        )
        return {
            "compute_ns": compute,
            "communication_ns": communication,
            "exposed_communication_ns": either - compute,
            "exposed_copy_ns": anything - either,
            "idle_ns": end - begin - anything,
        }


def device_times(work: pd.DataFrame) -> Occupied:
    """Return the times of one device from its work, rows of WORK."""
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["duration_ns"].to_numpy()
    communicates = is_communication(work["name"])
    computes = (work["category"] == "kernel").to_numpy() & ~communicates
    copies = ~(computes | communicates)
    return occupied(*((start[each], end[each]) for each in (computes, communicates, copies)))


def occupied(compute: Spans, communication: Spans, copies: Spans) -> Occupied:
    """Return the times from starts and ends of computation, communication and copies, in any order."""
    return Occupied(
        Covered(*compute),
        _any_of(compute, copies),
        Covered(*communication),
        _any_of(compute, communication),
        _any_of(compute, communication, copies),
    )


def _any_of(*spans: Spans) -> Covered:
    starts, ends = zip(*spans, strict=True)
    return Covered(np.concatenate(starts), np.concatenate(ends))


@dataclass(frozen=True, eq=False)
class RankWork:
    """The work of a rank."""

    work: pd.DataFrame = field(repr=False)
    """WORK; `layer` is a row of `layers`."""
    steps: pd.DataFrame = field(repr=False)
    layers: np.ndarray
    """Paths of the layers."""
    on_device: bool
    device_name: str
    gpu: GPU | None


def rank_work(trace: Trace, host: Host) -> RankWork:
    """Analyze the work of a trace. Raises InputError for a trace without work."""
    attributed = attribute(host, issued(host, trace.device))
    items = attributed.items
    device = run_device(trace.metadata, items, None)
    judged = judge(host, attributed, device.gpu, trace.metadata.capture)
    steps = timeline(trace.host, items, attributed.steps).steps
    work = work_table(attributed, trace.host["name"], judged, 1.0)
    paths = np.array([*attributed.placed.paths, NO_LAYER], dtype=object)
    release_freed()
    return RankWork(work, steps, paths, items.on_device, device.name, device.gpu)


_WRAPPERS = re.compile(r"^(?:autograd::engine|torch::autograd|profiler::|DistributedDataParallel)")
"""Ops that call others; their self time is dispatch."""


@dataclass(frozen=True, eq=False)
class HostTimes:
    """The times in which a CPU computes and communicates, its work, and the causes of its other time in steps."""

    occupied: Occupied
    work: pd.DataFrame = field(repr=False)
    idle: pd.DataFrame = field(repr=False)
    """Columns step, cause and idle_ns."""


def host_times(host: Host, rank: RankWork) -> HostTimes:
    """Return the times of a trace without device work. Ops inside a data loader count as data loading."""
    every = Nest(host.table, np.ones(len(host.start), dtype=bool))
    loading = nearest(every.parents, matching(host.name, LOADING)) >= 0
    others = host.communicates | is_communication(host.name) | matching(host.name, _WRAPPERS) | loading
    computes = host.is_op & ~others
    start, end, owner = innermost_segments(host.table, host.ops)
    compute = start[computes[owner]], end[computes[owner]]
    communicates = host.communicates & host.is_range
    communication = host.start[communicates], (host.start + host.duration)[communicates]
    nothing = np.zeros(0, dtype=np.int64)
    busy = occupied(compute, communication, (nothing, nothing))
    work = rank.work[computes[rank.work["op"].to_numpy()]]
    return HostTimes(busy, work, _idle(host, computes, busy.anything, rank.steps))


def _idle(host: Host, computes: Bools, busy: Covered, steps: pd.DataFrame) -> pd.DataFrame:
    begin, end, step = _gaps(busy, steps)
    if not len(begin):
        return pd.DataFrame({"step": [], "cause": [], "idle_ns": []})
    threads = np.bincount(host.thread[computes], minlength=int(host.thread.max()) + 1) > 0
    modules = np.sort(host.start[host.is_module & threads[host.thread]])
    by = Launching(threads, np.sort(host.start[computes]), modules, np.zeros(len(host.start), dtype=bool))
    parts = host_activity(host.table, by, begin, end)
    of = step[parts["window"].to_numpy(dtype=np.int64)]
    return pd.DataFrame({"step": of, "cause": parts["cause"], "idle_ns": parts["duration_ns"]})


def _gaps(busy: Covered, steps: pd.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return start, end and step of each gap between busy times in steps, in order and without overlap."""
    first = steps["start_ns"].to_numpy(np.int64)
    last = np.minimum(first + steps["wall_ns"].to_numpy(), np.append(first[1:], np.iinfo(np.int64).max))
    start, end = busy.spans()
    edges = np.unique(np.concatenate([first, last, start, end]))
    begin, stop = edges[:-1], edges[1:]
    at = np.searchsorted(first, begin, "right") - 1
    free = (at >= 0) & (begin < np.append(last, 0)[at]) & ~busy.at(begin)
    return begin[free], stop[free], steps["step"].to_numpy()[at[free]]
