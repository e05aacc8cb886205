"""Computes wall, busy and idle time of the trace and of each step."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import Rows
from tracekit.analyzers.attribution.steps import Steps
from tracekit.analyzers.attribution.work_items import WorkItems
from tracekit.analyzers.breakdown.communication import device_time
from tracekit.analyzers.breakdown.covered import Covered
from tracekit.analyzers.result_tables import STEPS
from tracekit.analyzers.results import Timeline

Ints = npt.NDArray[np.int64]

_TIMED = ("op", "range", "runtime")
_OVERLAP = 0.05
"""Steps that overlap by less than this fraction of their period count as consecutive."""


def timeline(host: pd.DataFrame, items: WorkItems, steps: Steps) -> Timeline:
    """Return the times of the trace and of its steps. Idle time is summed over all devices with work.

    The trace's wall time spans its steps and all its work; without steps, also what ran on the host.
    """
    devices = len(np.unique(items.device))
    host_start, host_end = (steps.start, steps.end) if len(steps.start) else _whole_trace(host, items)
    start, end = _step_spans(host, host_start, host_end, items, steps.of_item)
    busy, kernels = _per_step(items, steps.of_item, len(start))
    if start is not host_start:
        busy = _within(items, start, end)
    table = STEPS.frame(
        {
            "step": np.arange(len(start)),
            "start_ns": start,
            "host_start_ns": host_start,
            "wall_ns": end - start,
            "busy_ns": busy,
            "idle_ns": np.maximum((end - start) * devices - busy, 0),
            "kernels": kernels,
        }
    )
    wall = int(max(end.max(), _ends(host, items).max()) - min(start.min(), items.start.min()))
    total = int(items.busy.sum())
    return Timeline(wall, total, wall * devices - total, table, device_time(items))


def _whole_trace(host: pd.DataFrame, items: WorkItems) -> tuple[Ints, Ints]:
    start = host["start_ns"].to_numpy()
    timed = host["category"].isin(_TIMED).to_numpy()
    began = timed | (host["category"] == "python").to_numpy()
    end = start + host["duration_ns"].to_numpy()
    first = min(start[began].min(initial=items.start.min()), items.start.min())
    return np.array([first]), np.array([end[timed].max(initial=items.end.max())])


def _step_spans(
    host: pd.DataFrame, host_start: Ints, host_end: Ints, items: WorkItems, step: Rows
) -> tuple[Ints, Ints]:
    """Return start and end of each step in ns.

    A step lasts from its start on the host to the end of its range or of its last device work. If the host begins the
    next step long before the device ends one, these spans would overlap. A step then lasts from its first device work
    to that of the next step, which is the steady-state time of a step. The same holds for a single step that began
    while the device still worked on one that was not recorded.
    """
    inside = step >= 0
    first, last = np.full(len(host_start), np.iinfo(np.int64).max), host_start.copy()
    np.minimum.at(first, step[inside], items.start[inside])
    np.maximum.at(last, step[inside], _ends(host, items)[inside])
    in_order = (first <= last).all() and (np.diff(first) > 0).all()
    if items.on_device and in_order and (_overlap(host_start, last) or _queued(host, first, last, items, step)):
        return first, np.append(first[1:], last[-1])
    return host_start, np.maximum(host_end, last)


def _ends(host: pd.DataFrame, items: WorkItems) -> Ints:
    """Return when each item ends. Ops of the host end after the ops inside them, which their self time leaves out."""
    return items.end if items.on_device else items.start + host["duration_ns"].to_numpy()[items.host_row]


def _overlap(host_start: Ints, last: Ints) -> bool:
    """Return whether the device usually still works on a step when the host begins the next one."""
    if len(host_start) < 2:
        return False
    return bool(np.median(last[:-1] - host_start[1:]) > _OVERLAP * np.median(np.diff(host_start)))


def _queued(host: pd.DataFrame, first: Ints, last: Ints, items: WorkItems, step: Rows) -> bool:
    """Return whether a single step launched its first work long before the device was done with earlier work."""
    if len(first) != 1:
        return False
    launches = host["start_ns"][(host["correlation"] >= 0) & host["correlation"].isin(items.correlation[step == 0])]
    if launches.empty:
        return False
    launched = int(launches.min())
    busy_until = items.end[items.start < first[0]].max(initial=launched)
    notable = _OVERLAP * (last[0] - first[0])
    return bool(busy_until - launched > notable > first[0] - busy_until)


def _within(items: WorkItems, start: Ints, end: Ints) -> Ints:
    """Return the busy time between the times, summed over devices. The device may still work on an earlier step."""
    devices = (items.device == device for device in np.unique(items.device))
    covered = [Covered(items.start[on].astype(np.int64), items.end[on].astype(np.int64)) for on in devices]
    return np.sum([each.within(start, end) for each in covered], axis=0, dtype=np.int64)


def _per_step(items: WorkItems, step: Rows, size: int) -> tuple[Ints, Ints]:
    inside = step >= 0
    busy = np.bincount(step[inside], weights=items.busy[inside], minlength=size)
    return busy.astype(np.int64), np.bincount(step[inside], minlength=size)
