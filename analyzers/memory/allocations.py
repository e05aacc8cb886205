"""Pairs allocations with their frees, and assigns them to the work that follows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Ints
from tracekit.analyzers.results import Analysis


@dataclass(frozen=True)
class Allocations:
    """Blocks that were allocated or freed while the trace was recorded."""

    begin_ns: Ints
    end_ns: Ints
    """Time of the free; the end of the trace if there is none."""
    bytes: Ints
    freed: npt.NDArray[np.bool_]
    before: npt.NDArray[np.bool_]
    """Whether the block was allocated before the first event and freed later."""
    held_before: int
    """Bytes that were allocated before the first event and never freed."""


def allocations(moves: pd.DataFrame) -> Allocations:
    """Return the blocks of a MOVES table."""
    times, sizes = moves["time_ns"].to_numpy(), moves["bytes"].to_numpy()
    allocated, end = sizes > 0, int(times.max()) + 1
    freed_by = _freed_by(moves["address"].to_numpy(), allocated)
    rows = np.flatnonzero(allocated)
    freed = freed_by[rows] >= 0
    unmatched = np.setdiff1d(np.flatnonzero(~allocated), freed_by[rows][freed])
    first = int(moves["allocated_bytes"].iloc[0] - sizes[0])
    return Allocations(
        begin_ns=np.append(times[rows], np.full(len(unmatched), times[0])),
        end_ns=np.append(np.where(freed, times[freed_by[rows]], end), times[unmatched]),
        bytes=np.append(sizes[rows], -sizes[unmatched]),
        freed=np.append(freed, np.ones(len(unmatched), dtype=bool)),
        before=np.arange(len(rows) + len(unmatched)) >= len(rows),
        held_before=max(0, first + int(sizes[unmatched].sum())),
    )


def _freed_by(addresses: Ints, allocated: npt.NDArray[np.bool_]) -> Ints:
    """Return, for each allocation, the row of the next event at its address if that is a free; else -1."""
    order = np.lexsort((np.arange(len(addresses)), addresses))
    following = np.append(order[1:], -1)
    same = np.append(addresses[order[1:]] == addresses[order[:-1]], False) & ~allocated[following]
    result = np.full(len(addresses), -1, dtype=np.int64)
    result[order] = np.where(same & allocated[order], following, -1)
    return result


def launched_ns(analysis: Analysis, host: pd.DataFrame) -> pd.DataFrame:
    """Return the work in launch order: `time_ns` of the launch on the host, layer, phase and op."""
    work = analysis.work
    launch = np.where(work["launch"] >= 0, work["launch"], work["op"]).astype(np.int64)
    started = host["start_ns"].to_numpy()
    times = np.where(launch >= 0, started[np.maximum(launch, 0)], work["start_ns"].to_numpy())
    paths = analysis.layers["path"].to_numpy(dtype=object)
    layer = work["layer"].to_numpy().astype(np.int64)
    table = pd.DataFrame(
        {
            "time_ns": times,
            "layer": np.where(layer >= 0, paths[np.maximum(layer, 0)], ""),
            "phase": work["phase"].astype(str).to_numpy(),
            "op": work["op_name"].astype(str).to_numpy(),
        }
    )
    return table.sort_values("time_ns", kind="stable", ignore_index=True)
