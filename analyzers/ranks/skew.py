"""Who waits for whom: arrivals at each collective, the wait apart from the transfer, and the ranks that impose it."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.clocks import SYNCHRONISING, Clocks

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def arrivals(calls: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    """The calls with `arrival`, `end` (of the job's call), `wait`, `imposed` and `transfer`, in ns on the job's clock.

    The end of a call is the median over its ranks. Where no rank can leave before all have arrived, a rank arrived its
    own duration before that end, whatever its clock says; elsewhere its clock says when.
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
    """The wait of the other ranks that each rank causes; these sum to all waits.

    Between two arrivals, those who are there wait for those who are not, who share that time equally.
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
