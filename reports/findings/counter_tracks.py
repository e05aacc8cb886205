"""Counter tracks of a device: throughput, fraction of the roof, and length of the launch queue."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.reports.findings.rates import Curve, divided, stacked, thinned


@dataclass(frozen=True)
class Counter:
    """One counter track. Viewers display its name and unit, as in "memory GB/s"."""

    name: str
    unit: str
    curve: Curve


def counters(work: pd.DataFrame) -> Iterator[Counter]:
    """Yield the counters for the work of one device, except those that are unknown for all of it."""
    start = work["start_ns"].to_numpy()
    end = start + np.maximum(work["duration_ns"].to_numpy(), 1)
    for name, unit, column, scale in (("arithmetic", "TFLOP/s", "flops", 1e-3), ("memory", "GB/s", "bytes", 1.0)):
        amount = work[column].to_numpy()
        known = np.isfinite(amount) & (amount > 0)
        if known.any():
            rate = scale * amount[known] / (end - start)[known]
            yield Counter(name, unit, thinned(stacked(start[known], end[known], rate)))
    fraction = work["roof_fraction"].to_numpy()
    known = np.isfinite(fraction)
    if known.any():
        spans = start[known], end[known]
        total, count = stacked(*spans, 100 * fraction[known]), stacked(*spans, np.ones(known.sum()))
        yield Counter("roof fraction", "%", thinned(divided(total, count)))
    delay = work["delay_ns"].to_numpy()
    queued = delay > 0
    if queued.any():
        waiting = stacked((start - delay)[queued], start[queued], np.ones(queued.sum()))
        yield Counter("queue", "length", thinned(waiting))
