"""Finds host calls that wait for the device, and the part of their time spent waiting."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.covered_time import covered_until
from tracekit.analyzers.attribution.kernel_names import matching
from tracekit.analyzers.attribution.nesting import take
from tracekit.analyzers.prediction.simulate import SYNC_RETURN_NS

_NAMES = re.compile(r"Synchronize|^(?:cuda|hip)(?:Memcpy(?:WithStream)?|Free|HostFree|FreeHost)$")

_NEVER_WAITS = re.compile(r"\bDtoD\b|\bPtoP\b|Device -> Device|Pinned")
"""Copies that the host only launches: between devices, and between device and pinned memory."""

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
    runtime = host.iloc[np.flatnonzero((times >= start) & (times <= stop))]
    runtime = runtime[(runtime.category == "runtime") & runtime.thread.isin(threads)]
    calls = runtime[waits_for_device(runtime.name) | runtime.index.isin(copying)].sort_values("start_ns")
    begin, thread = calls.start_ns.to_numpy().astype(np.int64), calls.thread.to_numpy()
    end = begin + calls.duration_ns.to_numpy()
    return calls[covered_until(begin, end, thread) < end]


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
    may_wait = (work.category == "memcpy").to_numpy() & ~matching(work.name, _NEVER_WAITS)
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
