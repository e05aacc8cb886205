"""Finds the time in which the host recorded CUDA graphs, instead of launching work."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.captures import capture_spans
from tracekit.analyzers.attribution.kernel_names import matching
from tracekit.analyzers.breakdown.covered import Covered

Ints = npt.NDArray[np.int64]

_COMPILED = re.compile(r"^Torch-Compiled Region")


def recording_graphs(host: pd.DataFrame) -> Covered:
    """Return the time of all captures, with that of the calls of compiled code around them.

    A call of compiled code that records a graph also checks and copies its inputs for it, and logs its metrics.
    """
    spans = np.array(capture_spans(host), dtype=np.int64).reshape(-1, 2)
    begin, end = spans[:, 0], spans[:, 1]
    if not len(spans):
        return Covered(begin, end)
    calls = host[host["category"].isin(["op", "range"]).to_numpy() & matching(host["name"], _COMPILED)]
    start = calls["start_ns"].to_numpy().astype(np.int64)
    stop = start + calls["duration_ns"].to_numpy()
    around = _holds_any(begin, start, stop)
    return Covered(np.concatenate([begin, start[around]]), np.concatenate([end, stop[around]]))


def _holds_any(times: Ints, start: Ints, stop: Ints) -> npt.NDArray[np.bool_]:
    """Return which spans contain at least one of the times."""
    ordered = np.sort(times)
    return np.searchsorted(ordered, start) < np.searchsorted(ordered, stop)
