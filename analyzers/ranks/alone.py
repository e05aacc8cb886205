"""The own time of a rank, as if no other rank delayed it.

It has two components. The device's own time excludes exposed communication, and the time in which it was idle because
the host had not launched its next work. The host's own time excludes calls in which it waits for the device. A rank
reaches a point in own time when its device has done the work before that point, and no earlier than each launch plus
the device's work since that launch. This keeps the host's own time visible if the host runs ahead of a device that
waits for other ranks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import Covered, is_copy_to_host, synchronises, take
from tracekit.analyzers.ranks.own_time import Occupied

Ints = npt.NDArray[np.int64]

NEVER = -1
_UNKNOWN = int(np.iinfo(np.int64).min // 2)


@dataclass(frozen=True, eq=False)
class Alone:
    """The own times of a rank's device and host, from the base time of its trace, in ns."""

    occupied: Occupied
    starved: Covered
    """When the device was idle because the host had not launched its next work."""
    waited: Covered
    """When the host waited for the device."""
    sync: Ints
    """Ends of the host's waits."""
    delay: Ints
    """Delay of the host relative to its own time after each wait; the additional first element is the time before any
    wait."""
    start: Ints
    """Starts of the device's work."""
    behind: Ints
    """Delay of the device relative to its own work since each start; with an additional first element, as above."""

    def device_until(self, time: Ints) -> Ints:
        """Return the device's own time from the base time to each of `time`."""
        return self.occupied.own_until(time) - self.starved.within(np.minimum(time, 0), time)

    def own_until(self, time: Ints) -> Ints:
        """Return the rank's own time to each of `time`, by its device."""
        return self.device_until(time) + self.behind[np.searchsorted(self.start, time, "right")]

    def step_until(self, time: Ints) -> Ints:
        """Return the rank's own time to each of `time`, by its device and its host."""
        host = (
            time - self.waited.within(np.minimum(time, 0), time) + self.delay[np.searchsorted(self.sync, time, "right")]
        )
        return np.maximum(self.own_until(time), host)

    def behind_at_sync(self, since: Ints, until: Ints) -> Ints:
        """Return how far the device was behind at the last wait of the host in each span; NEVER without a wait."""
        last = np.searchsorted(self.sync, until, "right") - 1
        time = np.append(self.sync, 0)[last]
        inside = (last >= 0) & (time > since)
        return np.where(inside, self.behind[np.searchsorted(self.start, time, "right")], NEVER)


def of_host(occupied: Occupied) -> Alone:
    """Return the clocks of a rank that computes on its host, which has a single clock."""
    nothing = np.zeros(0, dtype=np.int64)
    none, zero = Covered(nothing, nothing), np.zeros(1, dtype=np.int64)
    return Alone(occupied, none, none, nothing, zero + _UNKNOWN, nothing, zero)


def of_device(host: pd.DataFrame, work: pd.DataFrame, occupied: Occupied) -> Alone:
    """Return the clocks from the work of one device, rows of WORK, and the host table."""
    work = work.sort_values("start_ns", kind="stable")
    start, delay = work["start_ns"].to_numpy(np.int64), work["delay_ns"].to_numpy(np.int64)
    free = np.r_[0, np.maximum.accumulate(start + work["duration_ns"].to_numpy())[:-1]][: len(start)]
    known = delay >= 0
    issued = np.where(known, start - delay, np.minimum(free, start))
    late = known & (issued > free)
    starved = Covered(free[late], np.minimum(issued, start)[late])
    waited, sync = _waits(host, work, occupied.anything)
    clocks = Alone(occupied, starved, waited, sync, np.zeros(0, np.int64), start, np.zeros(0, np.int64))
    lead = issued - waited.within(np.minimum(issued, 0), issued) - clocks.device_until(np.minimum(free, start))
    lead = np.where(known, lead, _UNKNOWN)
    delay, behind = _followed(clocks, issued, lead)
    return Alone(occupied, starved, waited, sync, delay, start, behind)


def _waits(host: pd.DataFrame, work: pd.DataFrame, busy: Covered) -> tuple[Covered, Ints]:
    """Return when threads that launch work waited for the busy device, and the ends of these waits in order.

    Threads wait in calls that synchronize, and in copies to the host.
    """
    launch = work["launch"].to_numpy()
    rows = take(host["thread"].to_numpy(), launch[launch >= 0])
    waits = synchronises(host) & np.isin(host["thread"].to_numpy(), np.unique(rows))
    waits[launch[(launch >= 0) & is_copy_to_host(work["name"])]] = True
    start = host["start_ns"].to_numpy(np.int64)[waits]
    calls = Covered(start, start + host["duration_ns"].to_numpy()[waits])
    return calls.common(busy), calls.spans()[1]


def _followed(clocks: Alone, issued: Ints, lead: Ints) -> tuple[Ints, Ints]:
    """Return `delay` and `behind` after each launch and each wait of the host, in order.

    Work that was launched between two waits begins after `lead` plus the delay at that time. After a wait, the host
    continues when the device has ended its work.
    """
    part = np.searchsorted(clocks.sync, issued, "right")
    most = np.full(len(clocks.sync) + 1, _UNKNOWN)
    np.maximum.at(most, part, lead)
    device = (
        clocks.device_until(clocks.sync) - clocks.sync + clocks.waited.within(np.zeros_like(clocks.sync), clocks.sync)
    )
    delays, later, behind = [0], 0, 0
    for largest, done in zip(most.tolist(), device.tolist(), strict=False):
        behind = max(behind, largest + later)
        later = max(later, done + behind)
        delays.append(later)
    delay = np.array(delays, dtype=np.int64)
    return delay, np.r_[0, np.maximum.accumulate(np.maximum(lead + delay[part], 0))]
