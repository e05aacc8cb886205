"""The times in which a rank computes, communicates and copies, and its time without exposed communication."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.breakdown.covered import Covered

Ints = npt.NDArray[np.int64]
Spans = tuple[Ints, Ints]
"""Starts and ends."""


@dataclass(frozen=True, eq=False)
class Occupied:
    """The times in which a rank computes; computes or copies; communicates; computes or communicates; or does any."""

    compute: Covered
    working: Covered
    communication: Covered
    either: Covered
    anything: Covered

    def own_until(self, time: Ints) -> Ints:
        """Return the time without exposed communication from the base time to each of `time`."""
        start = np.minimum(time, 0)
        return time - self.either.within(start, time) + self.compute.within(start, time)

    def parts(self, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the columns of RANK_STEPS for intervals of time."""
        compute, communication, either, anything = (
            covered.within(begin, end) for covered in (self.compute, self.communication, self.either, self.anything)
        )
        return {
            "compute_ns": compute,
            "communication_ns": communication,
            "exposed_communication_ns": either - compute,
            "exposed_copy_ns": anything - either,
            "idle_ns": end - begin - anything,
        }


def of_device(work: pd.DataFrame) -> Occupied:
    """Return the times of one device from its work, rows of WORK."""
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["duration_ns"].to_numpy()
    communicates = is_communication(work["name"])
    computes = (work["category"] == "kernel").to_numpy() & ~communicates
    copies = ~(computes | communicates)
    return occupied(*((start[each], end[each]) for each in (computes, communicates, copies)))


def occupied(compute: Spans, communication: Spans, copies: Spans) -> Occupied:
    """Return the times from starts and ends of computation, communication and copies, in any order."""
    return Occupied(
        Covered(*compute),
        _any_of(compute, copies),
        Covered(*communication),
        _any_of(compute, communication),
        _any_of(compute, communication, copies),
    )


def _any_of(*spans: Spans) -> Covered:
    starts, ends = zip(*spans, strict=True)
    return Covered(np.concatenate(starts), np.concatenate(ends))
