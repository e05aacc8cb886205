"""Host work outside the model, which no optimization of the model's ops removes, and its place in a step."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.breakdown.gaps import LONG_GAP_NS
from tracekit.analyzers.breakdown.host_activity import Launching, host_activity
from tracekit.analyzers.idle_tables import OUTSIDE_MODEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

VARIES = 0.5
"""Exponent of the variation over time of host work outside the model, relative to that of launches.
In eight scripts this work varied by a factor of 0.7 to 1.3. Launches varied in eight scripts by 0.7 to 1.4, and by 0.63
to 1.58 with the profiler's time."""
TAIL = 1.0
"""Place of host work after the last launch."""


def _none() -> npt.NDArray:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class Outside:
    """Host work in nanoseconds by cause (one of OUTSIDE_MODEL) and place. The place is the fraction of the step's ops
    that are launched before it, 0 to 1; it stays the same when ops change."""

    cause: npt.NDArray[np.object_] = field(default_factory=_none)
    ns: Floats = field(default_factory=_none)
    place: Floats = field(default_factory=_none)

    def total(self, causes: Iterable[str] = OUTSIDE_MODEL) -> float:
        """Return the time of these causes."""
        return float(self.ns[np.isin(self.cause, list(causes))].sum())

    @property
    def tail_ns(self) -> float:
        """Time after the last launch."""
        return float(self.ns[self.place >= TAIL].sum())

    def scaled(self, factor: float, causes: Iterable[str] = OUTSIDE_MODEL) -> "Outside":
        """Return a copy in which the time of these causes is multiplied by `factor`."""
        if factor == 1.0:
            return self
        return replace(self, ns=np.where(np.isin(self.cause, list(causes)), self.ns * factor, self.ns))

    def grown(self, work: float, exponent: float) -> "Outside":
        """Return a copy for a step with `work` times the work. Unexplained time grows with this power of the work."""
        explained = [cause for cause in OUTSIDE_MODEL if cause != "unexplained"]
        return self.scaled(work, explained).scaled(work**exponent, ("unexplained",))

    def before_each(self, ops: int, host_factor: float = 1.0) -> Floats:
        """Return the time before each of `ops` ops, and last the time after all of them, on a host that takes
        `host_factor` times as long for launches."""
        times = np.zeros(ops + 1)
        rows = np.where(self.place >= TAIL, ops, np.minimum(self.place * ops + 0.5, ops - 1)).astype(np.int64)
        np.add.at(times, rows, self.ns * host_factor**VARIES)
        return times


class BeforeOps(msgspec.Struct, frozen=True, eq=False):
    """Host time before each op, in nanoseconds, that is not spent launching. The sum is at most the op's host time."""

    outside: Floats
    """Work outside the model."""
    planning: Floats
    """Time in which the op plans its kernel."""
    recording: Floats
    """Time in which graphs are recorded."""


def outside_work(
    host: pd.DataFrame, by: Launching, launched: Ints, start: int, stop: int, host_ns: Floats
) -> tuple[Outside, BeforeOps]:
    """Return the work outside the model of a step from `start` to `stop`, given the launch times of its ops in order,
    and what the host did before each op. Graphs that are recorded after the last launch count as setup."""
    begin, end = np.append(start, launched), np.append(launched, max(stop, launched[-1]))
    long = np.flatnonzero(end - begin >= LONG_GAP_NS)
    if not len(long):
        return Outside(), BeforeOps(*np.zeros((3, len(launched))))
    activity = host_activity(host, by, begin[long], end[long])
    after = (activity["window"] == len(long) - 1) & (long[-1] == len(launched))
    activity["cause"] = activity["cause"].mask(after & (activity["cause"] == "recording"), "setup")
    pieces = activity[activity["cause"].isin(OUTSIDE_MODEL)]
    op, ns = long[pieces["window"].to_numpy(dtype=np.int64)], pieces["duration_ns"].to_numpy()
    most = np.append(host_ns, np.inf)
    total = np.bincount(op, ns, minlength=len(most))
    ns = ns * np.minimum(1.0, most / np.maximum(total, 1.0))[op]
    place = np.where(op == len(launched), TAIL, op / len(launched))
    times = np.bincount(op, ns, minlength=len(most))[:-1].astype(np.float64)
    outside = _summed(pieces["cause"].astype(object).to_numpy(), ns, place)
    rest = np.maximum(host_ns - times, 0.0)
    planning = np.minimum(_before(activity, "planning", long, len(launched)), rest)
    recording = np.minimum(_before(activity, "recording", long, len(launched)), rest - planning)
    return outside, BeforeOps(times, planning, recording)


def _before(activity: pd.DataFrame, cause: str, long: Ints, ops: int) -> Floats:
    """Return the time of a cause before each op. `long` holds the op of each window."""
    pieces = activity[activity["cause"] == cause]
    return np.bincount(long[pieces["window"]], pieces["duration_ns"], minlength=ops + 1)[:-1].astype(np.float64)


def _summed(cause: npt.NDArray[np.object_], ns: Floats, place: Floats) -> Outside:
    sums = (
        pd.DataFrame({"cause": cause, "place": place, "ns": ns}).groupby(["place", "cause"])["ns"].sum().reset_index()
    )
    return Outside(sums["cause"].to_numpy(dtype=object), sums["ns"].to_numpy(), sums["place"].to_numpy())
