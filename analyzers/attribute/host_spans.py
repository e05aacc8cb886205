"""Lists what the host did in one step, outermost ops and driver calls, for a timeline."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host_kinds import synchronises
from tracekit.analyzers.attribute.kernel_names import is_launch
from tracekit.analyzers.attribute.nesting import Nest, Rows
from tracekit.analyzers.results import HOST_SPANS

Ints = npt.NDArray[np.int64]

LIMIT = 4_000
"""Maximum number of spans, of which the longest are kept."""
_THREADS = 4


def median_step(steps: pd.DataFrame) -> int:
    """Return the row of the step of median length; -1 without steps."""
    return int(np.argsort(steps["wall_ns"].to_numpy(), kind="stable")[len(steps) // 2]) if len(steps) else -1


def host_spans_table(host: pd.DataFrame, ops: Nest, steps: pd.DataFrame) -> pd.DataFrame:
    """Return HOST_SPANS of the busiest threads, ordered by start. `ops` is the nest of the ops."""
    row = median_step(steps)
    if row < 0:
        return HOST_SPANS.empty()
    begin = int(steps["start_ns"].iloc[row])
    rows = _within(host, _outermost(ops), _runtime(host), begin, begin + int(steps["wall_ns"].iloc[row]))
    duration, thread = host["duration_ns"].to_numpy()[rows], _by_time(host, rows)
    kept = np.flatnonzero(thread < _THREADS)
    kept = np.sort(kept[np.argsort(-duration[kept], kind="stable")[:LIMIT]])
    longest = host.iloc[rows[kept]]
    return HOST_SPANS.frame(
        {
            "start_ns": longest["start_ns"].to_numpy(),
            "duration_ns": duration[kept],
            "thread": thread[kept].astype(np.int32),
            "kind": pd.Categorical(_kinds(longest), categories=["op", "launch", "sync", "call"]),
            "name": longest["name"].cat.remove_unused_categories().array,
        }
    )


def _outermost(ops: Nest) -> Rows:
    return ops.rows[ops.parent < 0]


def _runtime(host: pd.DataFrame) -> Ints:
    return np.flatnonzero((host["category"] == "runtime").to_numpy())


def _within(host: pd.DataFrame, ops: Rows, calls: Ints, begin: int, end: int) -> Ints:
    rows = np.concatenate([ops, calls])
    start = host["start_ns"].to_numpy()[rows]
    inside = (start >= begin) & (start < end)
    return rows[inside][np.argsort(start[inside], kind="stable")]


def _by_time(host: pd.DataFrame, rows: Ints) -> Ints:
    """Return the rank of each row's thread, by descending time."""
    number, thread = np.unique(host["thread"].to_numpy()[rows], return_inverse=True)
    total = np.bincount(thread, weights=host["duration_ns"].to_numpy()[rows], minlength=len(number))
    rank = np.empty(len(number), dtype=np.int64)
    rank[np.argsort(-total, kind="stable")] = np.arange(len(number))
    return rank[thread]


def _kinds(rows: pd.DataFrame) -> npt.NDArray[np.object_]:
    tests = [(rows["category"] == "op").to_numpy(), synchronises(rows), is_launch(rows["name"])]
    return np.select(tests, ["op", "sync", "launch"], default="call").astype(object)
