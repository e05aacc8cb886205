"""Waiting times: arrivals at each collective, the wait separate from the transfer, and the ranks that cause it."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.clocks import SYNCHRONISING, Clocks

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def arrivals(calls: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    """Return the calls with `arrival`, `end` (of the job's call), `wait`, `imposed` and `transfer`, in ns on the job's
    clock.

    The end of a call is the median over its ranks. In a kind that no rank can leave before all have arrived, a rank
    arrives its own duration before that end, and its clock is not used; in other kinds its clock is used.
    """
    rank = calls["rank"].to_numpy()
    begin, end = (clocks.corrected(rank, calls[name].to_numpy()) for name in ("start_ns", "end_ns"))
    common = pd.Series(end).groupby(calls["call"].to_numpy()).transform("median").to_numpy()
    synchronising = calls["kind"].isin(SYNCHRONISING).to_numpy()
    arrival = np.where(synchronising, common - (end - begin), begin)
    last = pd.Series(arrival).groupby(calls["call"].to_numpy()).transform("max").to_numpy()
    timed = calls.assign(arrival=arrival, end=common, wait=last - arrival, transfer=np.maximum(common - last, 0.0))
    return timed.assign(imposed=_imposed(timed))


def _imposed(calls: pd.DataFrame) -> Floats:
    """Return the wait of other ranks that each rank causes; the sum is that of all waits.

    Between two arrivals, the ranks that are there wait for those that are missing, which share that time equally.
    """
    call, arrival = calls["call"].to_numpy(), calls["arrival"].to_numpy()
    order = np.lexsort((arrival, call))
    call, arrival = call[order], arrival[order]
    size = np.bincount(call)[call] if len(call) else call
    first = np.r_[True, call[1:] != call[:-1]][: len(call)]
    start = np.maximum.accumulate(np.where(first, np.arange(len(call)), 0))
    position = np.arange(len(call)) - start
    since = np.where(first, 0.0, np.diff(arrival, prepend=arrival[:1]))
    share = position * since / np.maximum(size - position, 1)
    total = np.cumsum(share)
    imposed = np.empty(len(call))
    imposed[order] = total - (total - share)[start]
    return imposed
