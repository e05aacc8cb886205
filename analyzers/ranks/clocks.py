"""Aligns the clocks of all ranks by the ends of collectives.

A collective of a kind in SYNCHRONISING cannot end on any rank before all have arrived, and ends everywhere within
microseconds of its transfer. Its end is the median of the corrected ends on its ranks; the offset of a clock is a line
fitted to its ends minus these medians. The two are computed alternately until nothing changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats, Ints

SYNCHRONISING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
PAIRED = ("send-receive",)
LEAST_CALLS = 2
"""Smallest number of shared collectives whose ends show whether an offset fits them."""
_ROUNDS = 100
_CERTAIN = 4.0
"""A drift counts if it exceeds this multiple of its standard error."""
_LEAST_FOR_DRIFT = 8
_OUTLIER = 4.0
_MAD = 1.4826
_FAR, _FAR_NS = 30.0, 2_000_000.0
_WORSE, _SAME_NS = 1.5, 20_000.0
"""Ranks of one host share a clock unless the fit of a shared clock is worse by this factor. Residuals up to this many
ns are noise of the ends."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """The offset of each rank's clock ahead of the job's: offset_ns + drift * (time - origin_ns)."""

    origin_ns: int
    offset_ns: Floats
    drift: Floats
    error_ns: float
    """90 % of the corrected ends are closer than this to the end of their collective; NaN if there is nothing to
    compare."""
    component: Ints = field(repr=False)
    """Ranks that share collectives, directly or through others, have the same number; -1 for ranks that share none."""

    def corrected(self, rank: Ints, time: Ints) -> Floats:
        """Return the time on the job's clock, in ns after the origin."""
        since = (time - self.origin_ns).astype(np.float64)
        return since - self.offset_ns[rank] - self.drift[rank] * since


def align(calls: pd.DataFrame, host: Sequence[int]) -> Clocks:
    """Fit the clocks to `calls`, as in Matched; `host` is the number of each rank's host, -1 if unknown.

    Sends may end early on one side, so they are used only between ranks that share no other calls, as stages of a
    pipeline. The ranks of a host share a clock unless their ends contradict this: containers may share a host's name.
    """
    clocks = _aligned(_shared(calls, SYNCHRONISING), host)
    if len(np.unique(clocks.component)) == 1 and clocks.component[0] >= 0:
        return clocks
    return _aligned(_shared(calls, (*SYNCHRONISING, *PAIRED)), host)


def _shared(calls: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """Return the calls of these kinds that several ranks have."""
    return calls[calls["kind"].isin(kinds) & (calls.groupby("call")["rank"].transform("size") > 1)]


def _aligned(shared: pd.DataFrame, host: Sequence[int]) -> Clocks:
    hosts, alone = np.asarray(host, dtype=np.int64), np.arange(len(host))
    apart = _fitted(shared, alone)
    if (hosts < 0).any() or len(np.unique(hosts)) == len(hosts):
        return apart
    together = _fitted(shared, hosts)
    return together if together.error_ns <= _WORSE * apart.error_ns + _SAME_NS else apart


def disagreeing(calls: pd.DataFrame, clocks: Clocks) -> npt.NDArray[np.bool_]:
    """Select the calls whose end, on corrected clocks, is too far from that of their counterparts to be the same
    call."""
    end = pd.Series(clocks.corrected(calls["rank"].to_numpy(), calls["end_ns"].to_numpy()))
    apart = (end - end.groupby(calls["call"].to_numpy()).transform("median")).abs().to_numpy()
    synchronising = calls["kind"].isin(SYNCHRONISING).to_numpy()
    shared = synchronising & (calls.groupby("call")["rank"].transform("size") > 1).to_numpy()
    usual = np.median(apart[shared]) if shared.any() else 0.0
    return shared & (apart > np.maximum(_FAR * usual, _FAR_NS))


def _fitted(shared: pd.DataFrame, clock: Ints) -> Clocks:
    origin = int(shared["start_ns"].min()) if len(shared) else 0
    fit = _Fit(
        shared["call"].to_numpy(),
        clock[shared["rank"].to_numpy()],
        (shared["end_ns"].to_numpy() - origin).astype(np.float64),
        int(clock.max(initial=-1)) + 1,
    )
    component = fit.start()
    fit.settle()
    offset, drift = fit.offset[clock], fit.drift[clock]
    return Clocks(origin, offset - np.median(offset), drift - np.median(drift), fit.error(), component[clock])


class _Fit:
    """Fits `size` clocks to the ends of collectives, given the `call`, `clock` and `end` of each."""

    def __init__(self, call: Ints, clock: Ints, end: Floats, size: int) -> None:
        self._call, self._clock, self._end = pd.factorize(call)[0], clock, end
        self._calls = int(self._call.max(initial=-1)) + 1
        self.offset, self.drift = np.zeros(size), np.zeros(size)

    def start(self) -> Ints:
        """Set offsets from one clock to the clocks that share collectives with it, and onwards.

        Return the component of each clock.
        """
        component = np.full(len(self.offset), -1, dtype=np.int64)
        for first in range(len(self.offset)):
            if component[first] >= 0 or not (self._clock == first).any():
                continue
            component[first] = first
            while self._reach(component, first):
                pass
        return component

    def _reach(self, component: Ints, first: int) -> bool:
        """Add the clocks that share at least LEAST_CALLS collectives with those of the component."""
        inside = component[self._clock] == first
        ends = pd.Series((self._end - self.offset[self._clock])[inside]).groupby(self._call[inside]).median()
        known = ends.reindex(self._call).to_numpy()
        rows = ~np.isnan(known) & (component[self._clock] < 0)
        if not rows.any():
            return False
        ahead = pd.Series((self._end - known)[rows]).groupby(self._clock[rows]).agg(["median", "size"])
        ahead = ahead[ahead["size"] >= LEAST_CALLS]
        self.offset[ahead.index] = ahead["median"]
        component[ahead.index] = first
        return len(ahead) > 0

    def settle(self) -> None:
        for _ in range(_ROUNDS):
            before = self.offset.copy()
            residual = self._residuals()
            self.offset += self._by_clock(residual, np.median)
            self._fit_drift()
            if np.abs(self.offset - before).max(initial=0.0) < 1.0:
                return

    def _corrected(self) -> Floats:
        return self._end - self.offset[self._clock] - self.drift[self._clock] * self._end

    def _residuals(self) -> Floats:
        """Return the corrected ends minus the median of their collective."""
        corrected = self._corrected()
        return corrected - _group_median(self._call, corrected, self._calls)[self._call]

    def _by_clock(self, values: Floats, what: object) -> Floats:
        return np.nan_to_num(_group_median(self._clock, values, len(self.offset)))

    def _fit_drift(self) -> None:
        """Fit a line to the residuals of each clock, without outliers, and use its slope if that is significant."""
        clock, size, y = self._clock, len(self.offset), self._residuals()
        far = np.abs(y - _group_median(clock, y, size)[clock])
        spread = _group_median(clock, far, size)[clock] * _MAD
        near = far <= _OUTLIER * spread + 1.0
        clock, t, y = clock[near], self._end[near], y[near]
        n = np.maximum(np.bincount(clock, minlength=size), 1)
        mean_t, mean_y = (np.bincount(clock, values, size) / n for values in (t, y))
        t, y = t - mean_t[clock], y - mean_y[clock]
        tt, ty, yy = (np.bincount(clock, values, size) for values in (t * t, t * y, y * y))
        slope = np.divide(ty, tt, out=np.zeros(size), where=tt > 0)
        rest = np.maximum(yy - slope * ty, 0.0) / np.maximum(n - 2, 1)
        deviation = np.sqrt(np.divide(rest, tt, out=np.full(size, np.inf), where=tt > 0))
        sure = (n >= _LEAST_FOR_DRIFT) & ((np.abs(slope) > _CERTAIN * deviation) | (self.drift != 0))
        slope = np.where(sure, slope, 0.0)
        self.drift += slope
        self.offset -= slope * mean_t

    def error(self) -> float:
        size = np.bincount(self._call, minlength=self._calls)[self._call]
        shared = size > 1
        if not shared.any():
            return float("nan")
        scaled = np.abs(self._residuals()[shared]) * np.sqrt(size[shared] / (size[shared] - 1))
        return float(np.quantile(scaled, 0.9))


def _group_median(group: Ints, values: Floats, size: int) -> Floats:
    """Return the median of each group's values; NaN for an empty group."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=size)
    first = np.cumsum(count) - count
    low, high = first + (count - 1) // 2, first + count // 2
    ordered = values[order]
    filled = count > 0
    result = np.full(size, np.nan)
    result[filled] = (ordered[low[filled]] + ordered[high[filled]]) / 2
    return result


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
