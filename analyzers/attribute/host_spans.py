"""Lists what the host did in the steps of a timeline, outermost ops and driver calls, for a timeline."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host_kinds import synchronises
from tracekit.analyzers.attribute.kernel_names import is_launch
from tracekit.analyzers.attribute.nesting import Nest, Rows
from tracekit.analyzers.results import HOST_SPANS

Ints = npt.NDArray[np.int64]

LIMIT, OTHERS = 4_000, 1_000
"""Maximum number of spans of the step of median length, and of each other step. The longest are kept."""
MOST_STEPS = 8
_THREADS = 4


def median_step(steps: pd.DataFrame) -> int:
    """Return the row of the step of median length; -1 without steps."""
    return int(np.argsort(steps["wall_ns"].to_numpy(), kind="stable")[len(steps) // 2]) if len(steps) else -1


def shown_steps(steps: pd.DataFrame) -> Ints:
    """Return the rows of the steps that a timeline shows, by time: that of median length, the shortest, the longest."""
    order = np.argsort(steps["wall_ns"].to_numpy(), kind="stable")
    kept = dict.fromkeys([median_step(steps), *order[:1].tolist(), *order[::-1].tolist()]) if len(steps) else {}
    return np.sort(np.array([*kept][:MOST_STEPS], dtype=np.int64))


def host_spans_table(host: pd.DataFrame, ops: Nest, steps: pd.DataFrame) -> pd.DataFrame:
    """Return HOST_SPANS of the busiest threads, ordered by start. `ops` is the nest of the ops."""
    shown = shown_steps(steps)
    if not len(shown):
        return HOST_SPANS.empty()
    rows, step = _rows_in_steps(host, _outermost(ops), _runtime(host), steps.iloc[shown])
    duration, thread = host["duration_ns"].to_numpy()[rows], _by_time(host, rows)
    kept = np.flatnonzero(thread < _THREADS)
    limit = np.where(shown == median_step(steps), LIMIT, OTHERS)
    kept = np.sort(kept[_longest(duration[kept], step[kept], limit)])
    longest = host.iloc[rows[kept]]
    return HOST_SPANS.frame(
        {
            "step": steps["step"].to_numpy()[shown[step[kept]]],
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


def _rows_in_steps(host: pd.DataFrame, ops: Rows, calls: Ints, steps: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the rows that start inside one of the steps, by start, and the position of the step of each."""
    rows = np.concatenate([ops, calls]).astype(np.int64)
    start = host["start_ns"].to_numpy()[rows]
    rows, start = rows[order := np.argsort(start, kind="stable")], start[order]
    begin = steps["start_ns"].to_numpy()
    step = np.searchsorted(begin, start, side="right") - 1
    inside = (step >= 0) & (start < (begin + steps["wall_ns"].to_numpy())[step])
    return rows[inside], step[inside]


def _longest(duration: Ints, step: Ints, limit: Ints) -> Ints:
    """Return the rows of the longest durations of each step, as many as its limit."""
    order = np.lexsort((-duration, step))
    position = np.arange(len(order)) - np.searchsorted(step[order], step[order])
    return order[position < limit[step[order]]]


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
