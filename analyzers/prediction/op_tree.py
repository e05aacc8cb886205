"""The tree of ops: maps each op to the outermost op that contains it."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.covered_time import covered_until

Ints = npt.NDArray[np.int64]

READS_A_VALUE = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
"""Calls that copy one number to the host and wait for it."""


def outermost(host: pd.DataFrame, ops: Ints, start: int, stop: int) -> Ints:
    """Return the outermost op on the same thread that contains each op (a row of `host`), or the op itself; -1 for -1.
    All ops begin between `start` and `stop`."""
    times = host["start_ns"].to_numpy()
    rows = np.flatnonzero((times >= start) & (times <= stop) & (host["category"] == "op").to_numpy())
    if not len(rows):
        return ops
    begin, thread = times[rows].astype(np.int64), host["thread"].to_numpy()[rows]
    end = begin + host["duration_ns"].to_numpy()[rows]
    roots = rows[covered_until(begin, end, thread) <= begin]
    tracks = np.unique(thread)
    places = _places(host, roots, tracks, start, stop)
    order = np.argsort(places, kind="stable")
    at = np.searchsorted(places[order], _places(host, np.maximum(ops, 0), tracks, start, stop), side="right") - 1
    known = (ops >= 0) & (at >= 0)
    return np.where(known, roots[order][at], ops)


def _places(host: pd.DataFrame, rows: npt.NDArray[np.integer], tracks: npt.NDArray, start: int, stop: int) -> Ints:
    """Return one number per row that sorts by thread, then by time."""
    track = np.searchsorted(tracks, host["thread"].to_numpy()[rows])
    since = host["start_ns"].to_numpy()[rows].astype(np.int64) - start
    return track * (stop - start + 1) + np.clip(since, 0, stop - start)
