"""Computes wall, busy and idle time of the trace and of each step."""

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.intervals import Covered, union_ns
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.nesting import Rows
from tracekit.analyzers.attribute.steps import Steps
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.results import STEPS, DeviceTime, Timeline

_OVERLAP = 0.05
"""Steps that overlap by less than this fraction of their period count as consecutive."""


def timeline(host: pd.DataFrame, items: WorkItems, steps: Steps) -> Timeline:
    """Return the times of the trace and of its steps. Idle time is summed over all devices with work.

    The trace's wall time spans its steps and all its work.
    """
    devices = len(np.unique(items.device))
    host_start, host_end = (steps.start, steps.end) if len(steps.start) else _whole_trace(host, items)
    start, end = _step_spans(host, host_start, host_end, items, steps.of_item)
    busy, kernels = _busy_per_step(items, steps.of_item, len(start))
    if start is not host_start or (busy > (end - start) * devices).any():
        busy = _busy_between(items, start, end)
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
    """Return the span of the work, from the launch of its first item: nothing says that what is around it recurs."""
    first = items.start.argmin()
    calls = (host["correlation"] == items.correlation[first]).to_numpy() & (items.correlation[first] >= 0)
    launched = host["start_ns"].to_numpy()[calls].min(initial=items.start[first])
    return np.array([launched]), np.array([_ends(host, items).max()])


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


def _busy_between(items: WorkItems, start: Ints, end: Ints) -> Ints:
    """Return the busy time between the times, summed over devices. The device may still work on an earlier step, or
    have begun before the launch, by clocks that disagree."""
    devices = (items.device == device for device in np.unique(items.device))
    covered = [Covered(items.start[on].astype(np.int64), items.end[on].astype(np.int64)) for on in devices]
    return np.sum([each.within(start, end) for each in covered], axis=0, dtype=np.int64)


def _busy_per_step(items: WorkItems, step: Rows, size: int) -> tuple[Ints, Ints]:
    inside = step >= 0
    busy = np.bincount(step[inside], weights=items.busy[inside], minlength=size)
    return busy.astype(np.int64), np.bincount(step[inside], minlength=size)


def device_time(items: WorkItems) -> DeviceTime | None:
    """Return the times by kind of work in ns, summed over devices; None for a CPU-only trace."""
    if not items.on_device:
        return None
    communication = items.said.communicates
    copies = ~communication & (items.category != "kernel").to_numpy()
    computation = ~communication & ~copies
    compute_ns = _union_ns(items, computation)
    return DeviceTime(
        span_ns=_span_ns(items),
        compute_ns=compute_ns,
        copy_ns=_union_ns(items, copies),
        communication_ns=_union_ns(items, communication),
        exposed_communication_ns=_union_ns(items, communication | computation) - compute_ns,
    )


def _union_ns(items: WorkItems, mask: Bools) -> int:
    return union_ns(items.start[mask], items.end[mask], items.device[mask])


def _span_ns(items: WorkItems) -> int:
    devices, number = np.unique(items.device, return_inverse=True)
    first = np.full(len(devices), np.iinfo(np.int64).max)
    last = np.full(len(devices), np.iinfo(np.int64).min)
    np.minimum.at(first, number, items.start)
    np.maximum.at(last, number, items.end)
    return int((last - first).sum())


_FEW = 3
"""Fewest steps with a mean."""
_CUT_OFF = 0.5
"""A last step with less than this fraction of the time of every other one was cut off,"""
_ALL = 0.9
"""as was a shorter one with less than this fraction of the kernels of every other one."""


def in_steps(work: pd.DataFrame) -> Bools:
    """Return which rows of WORK are inside steps; all rows if no step contains any."""
    inside = (work["step"] >= 0).to_numpy()
    return inside if inside.any() else ~inside


def whole_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of STEPS without a last one that is far shorter than every other, or shorter and of less work.

    A step lasts until the next one begins. After the last one, the recording ends with its work, so that it lacks what
    the host does between steps.
    """
    wall, kernels = steps["wall_ns"].to_numpy(), steps["kernels"].to_numpy()
    if len(wall) < 2:
        return steps
    least = _CUT_OFF if kernels[-1] >= _ALL * kernels[:-1].min() else 1.0
    return steps[:-1] if wall[-1] < least * wall[:-1].min() else steps


_STALLS = 1.2
"""Mean wall time over the median, from which stalls between typical steps are a part of the run."""


def typical_ns(steps: pd.DataFrame) -> float:
    """Return the wall time that, times the number of whole steps, covers the run: the median, or the mean if steps
    between are much longer. A first step that is much longer than the others starts something up."""
    usual, wall = usual_ns(steps), steps["wall_ns"].to_numpy()
    wall = wall[1:] if len(wall) > _FEW and wall[0] > _STALLS * usual else wall
    return float(wall.mean()) if len(wall) >= _FEW and wall.mean() > _STALLS * usual else usual


def usual_ns(steps: pd.DataFrame) -> float:
    """Return the median wall time of whole steps.

    Of an even number of steps that overlap, it is the shorter one in the middle: the first of them begins with an idle
    device, so that it takes longer than those behind it.
    """
    if steps.empty:
        return np.nan
    overlap = (steps["start_ns"].to_numpy() > steps["host_start_ns"].to_numpy()).any()
    return float(np.quantile(steps["wall_ns"].to_numpy(), 0.5, method="lower" if overlap else "midpoint"))
