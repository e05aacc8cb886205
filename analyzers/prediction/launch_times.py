"""Derives when the host had launched each item of work, which is the end of its call only for plain launches."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import take
from tracekit.analyzers.prediction.launching import LAUNCH_LATENCY_NS
from tracekit.analyzers.prediction.waiting import blocking_copies, waits_for_device
from tracekit.analyzers.trace import Trace


def idle_before(everything: pd.DataFrame, work: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the idle time in nanoseconds of the device before each item of work, including work of earlier steps."""
    device = everything[everything.device == work.device.iloc[0]].sort_values("start_ns", kind="stable")
    start, duration = (device[name].to_numpy().astype(np.int64) for name in ("start_ns", "duration_ns"))
    busy_until = np.maximum.accumulate(np.append(0, (start + duration)[:-1]))
    return pd.Series(np.maximum(start - busy_until, 0), index=device.index).reindex(work.index).to_numpy()


def launched_ns(
    trace: Trace, work: pd.DataFrame, step_start: int, idle_before: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the time at which the host had launched each item.

    A copy that its call waits for is launched before the call returns. Time in the call before such a copy begins is
    host time only while the device is idle. A graph may begin before the call that launches it returns. If the trace
    lacks the launch of an item, the last known launch among items that started before is used: its own host time is
    unknown, and its device start would make the host wait.
    """
    launch = work.launch.to_numpy()
    start, duration = (take(trace.host[name].to_numpy(), launch) for name in ("start_ns", "duration_ns"))
    waits = take(waits_for_device(trace.host.name), launch, absent=False) | blocking_copies(trace.host, work)
    staged = np.minimum(work.start_ns.to_numpy() - LAUNCH_LATENCY_NS - start, idle_before)
    launched = np.where(waits, start + np.maximum(staged, 0), start + duration)
    launched = np.where(launch >= 0, np.minimum(launched, _graph_begins(work)), step_start)
    return np.where(launch >= 0, launched, np.maximum.accumulate(np.maximum(launched, step_start)))


def _graph_begins(work: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return for each node of a graph when the first node of its launch began; the largest integer for other work."""
    first = work["start_ns"].groupby(work["launch"]).transform("min").to_numpy()
    return np.where(work["graph"].to_numpy() >= 0, first, np.iinfo(np.int64).max)
