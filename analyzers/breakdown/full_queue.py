"""Finds launches that waited for room in the queue of a device."""

import numpy as np
import pandas as pd

from tracekit.analyzers.attribution.nesting import Rows, take

FULL = 1_000
"""Launches that are not done from which the queue is full: CUDA takes 1,022 of one stream."""
LONG_NS = 50_000
"""Time of a launch, in nanoseconds, from which it waited."""


def blocked_launches(host: pd.DataFrame, work: pd.DataFrame) -> Rows:
    """Return the host rows of the launches of `work` (rows of WORK of a device) that waited for a full queue."""
    calls = work[~work.duplicated("launch") | (work["launch"] < 0).to_numpy()]
    launch = calls["launch"].to_numpy()
    if len(calls) < FULL:
        return np.zeros(0, dtype=np.int32)
    began = take(host["start_ns"].to_numpy(), launch, np.iinfo(np.int64).min)
    ended = np.sort((calls["start_ns"] + calls["duration_ns"]).to_numpy())
    pending = np.searchsorted(np.sort(began), began) - np.searchsorted(ended, began, "right")
    long = take(host["duration_ns"].to_numpy(), launch, 0) >= LONG_NS
    return np.sort(launch[(launch >= 0) & (pending >= FULL) & long])
