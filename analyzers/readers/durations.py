"""Cap impossible durations: over a day, or past the end of later work on the same stream."""

import numpy as np

DAY_NS = 86_400 * 10**9


def horizon(start_ns: np.ndarray, duration_ns: np.ndarray) -> int:
    """Return the last start, or the last end of a row of at most a day, whichever is later. There must be at least one
    row."""
    if duration_ns.max() > DAY_NS:
        duration_ns = np.where(duration_ns > DAY_NS, 0, duration_ns)
    return int((start_ns + duration_ns).max())


def cap_days(start_ns: np.ndarray, duration_ns: np.ndarray, horizon_ns: int) -> np.ndarray:
    """Cap durations over a day at the horizon. Return the same array if there are none."""
    if duration_ns.max(initial=0) <= DAY_NS:
        return duration_ns
    return np.where(duration_ns > DAY_NS, np.maximum(horizon_ns - start_ns, 0), duration_ns)


def cap_overtaken(start_ns: np.ndarray, duration_ns: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """Cap durations that end after later work of the stream has ended at the start of the next work.

    Rows are ordered by start. `stream` numbers the streams; rows of -1 are neither capped nor evidence. Work of a
    stream completes in order, but may begin before its predecessor has ended (programmatic dependent launch): such an
    overlap stays.
    """
    capped = duration_ns.copy()
    rows = np.flatnonzero(stream >= 0)
    rows = rows[np.argsort(stream[rows], kind="stable")]
    for of_stream in np.split(rows, np.flatnonzero(np.diff(stream[rows])) + 1):
        start = start_ns[of_stream]
        end = start + duration_ns[of_stream]
        earliest_later_end = np.minimum.accumulate(end[::-1])[::-1][1:]
        overtaken = np.flatnonzero(end[:-1] > earliest_later_end)
        capped[of_stream[overtaken]] = start[overtaken + 1] - start[overtaken]
    return capped
