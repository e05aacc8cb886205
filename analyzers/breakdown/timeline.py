"""Wall, busy and idle time, of the trace and of each step."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.attribution.nesting import Rows
from tracekit.analyzers.attribution.steps import Marks
from tracekit.analyzers.breakdown.communication import device_time
from tracekit.analyzers.result_tables import STEPS
from tracekit.analyzers.results import Timeline

Ints = npt.NDArray[np.int64]

_TIMED = ("op", "range", "runtime")


def timeline(host: pd.DataFrame, items: Items, marks: Marks, step: Rows) -> Timeline:
    """`step`: per item, the ordinal of its step.

    A step lasts from its start on the host to the end of its range or of its last device work. The trace's wall time
    spans its steps and all its work; without marked steps also what ran on the host. Idle time is that of all
    devices with work.
    """
    devices = len(np.unique(items.device))
    start, end = _step_spans(host, items, marks, step)
    busy, kernels = _per_step(items, step, len(start))
    steps = STEPS.frame(
        {
            "step": np.arange(len(start)),
            "start_ns": start,
            "wall_ns": end - start,
            "busy_ns": busy,
            "idle_ns": np.maximum((end - start) * devices - busy, 0),
            "kernels": kernels,
        }
    )
    wall = int(max(end.max(), items.end.max()) - min(start.min(), items.start.min()))
    total = int(items.busy.sum())
    return Timeline(wall, total, wall * devices - total, steps, device_time(items))


def _step_spans(host: pd.DataFrame, items: Items, marks: Marks, step: Rows) -> tuple[Ints, Ints]:
    host_start = host["start_ns"].to_numpy()
    host_end = host_start + host["duration_ns"].to_numpy()
    if len(marks.steps):
        start, end = host_start[marks.steps], host_end[marks.steps]
    else:
        timed = host["category"].isin(_TIMED).to_numpy()
        start = np.array([min(host_start[timed].min(initial=items.start.min()), items.start.min())])
        end = np.array([host_end[timed].max(initial=items.end.max())])
    inside = step >= 0
    end = end.copy()
    np.maximum.at(end, step[inside], items.end[inside])
    return start, end


def _per_step(items: Items, step: Rows, size: int) -> tuple[Ints, Ints]:
    inside = step >= 0
    busy = np.bincount(step[inside], weights=items.busy[inside], minlength=size)
    return busy.astype(np.int64), np.bincount(step[inside], minlength=size)
