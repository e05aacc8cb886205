"""The time of a rank on a CPU: its ops, its collectives, and the other work of the host."""

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication, matching
from tracekit.analyzers.attribution.nesting import Nest, nearest
from tracekit.analyzers.attribution.work_items import innermost_segments
from tracekit.analyzers.breakdown.covered import Covered
from tracekit.analyzers.breakdown.host_activity import Launching, host_activity
from tracekit.analyzers.breakdown.host_kinds import LOADING, is_collective, is_module
from tracekit.analyzers.ranks.own_time import Occupied, occupied
from tracekit.analyzers.ranks.rank_work import RankWork

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WRAPPERS = re.compile(r"^(?:autograd::engine|torch::autograd|profiler::|DistributedDataParallel)")
"""Ops that call others; their self time is dispatch."""


@dataclass(frozen=True, eq=False)
class HostTimes:
    """The times in which a CPU computes and communicates, its work, and the causes of its other time in steps."""

    occupied: Occupied
    work: pd.DataFrame = field(repr=False)
    idle: pd.DataFrame = field(repr=False)
    """Columns step, cause and idle_ns."""


def host_times(host: pd.DataFrame, rank: RankWork) -> HostTimes:
    """Return the times of a trace without device work. Ops inside a data loader count as data loading."""
    loading = _loading(host)
    is_op = (host["category"] == "op").to_numpy()
    computes = is_op & ~is_collective(host) & ~is_communication(host["name"]) & ~matching(host["name"], _WRAPPERS)
    start, end, owner = innermost_segments(host, Nest(host, is_op))
    mine = (computes & ~loading)[owner]
    communication = _times(host, is_collective(host) & (host["category"] == "range").to_numpy())
    compute = start[mine], end[mine]
    nothing = np.zeros(0, dtype=np.int64)
    busy = occupied(compute, communication, (nothing, nothing))
    work = rank.work[(computes & ~loading)[rank.work["op"].to_numpy()]]
    return HostTimes(busy, work, _idle(host, computes & ~loading, busy.anything, rank.steps))


def _loading(host: pd.DataFrame) -> Bools:
    """Select the rows inside the ranges and calls of a data loader."""
    nest = Nest(host, np.ones(len(host), dtype=bool))
    return nearest(nest.parents(), matching(host["name"], LOADING)) >= 0


def _idle(host: pd.DataFrame, computes: Bools, busy: Covered, steps: pd.DataFrame) -> pd.DataFrame:
    begin, end, step = _gaps(busy, steps)
    if not len(begin):
        return pd.DataFrame({"step": [], "cause": [], "idle_ns": []})
    thread, moment = host["thread"].to_numpy(), host["start_ns"].to_numpy(np.int64)
    threads = np.bincount(thread[computes], minlength=int(thread.max()) + 1) > 0
    modules = np.sort(moment[is_module(host) & threads[thread]])
    by = Launching(threads, np.sort(moment[computes]), modules, np.zeros(len(host), dtype=bool))
    parts = host_activity(host, by, begin, end)
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


def _times(host: pd.DataFrame, mask: Bools) -> tuple[Ints, Ints]:
    start = host["start_ns"].to_numpy(np.int64)[mask]
    return start, start + host["duration_ns"].to_numpy()[mask]
