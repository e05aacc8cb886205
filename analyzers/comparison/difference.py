"""Decomposes the latencies of two steps into durations by op family, minus overlap, plus idle time by cause."""

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.comparison.comparison import Side
from tracekit.analyzers.comparison.difference_tables import DIFFERENCE
from tracekit.analyzers.comparison.mean_step import EDGES, StepSummary
from tracekit.analyzers.comparison.sums import main_precision, numbered, summed

OVERLAP = "overlap"
"""Negative time, because overlapping work counts in full in each family, but only once in the latency."""
PROFILER = "profiler"
"""Negative time, if kernels took longer under the profiler than the whole step without it."""


def difference(a: Side, b: Side, work_a: pd.DataFrame, work_b: pd.DataFrame, idle: pd.DataFrame) -> pd.DataFrame:
    """Return DIFFERENCE with families, overlap, and idle causes (from `idle_by_cause`), largest changes first."""
    families = sorted({*work_a["family"], *work_b["family"]})
    place = {name: row for row, name in enumerate(families)}
    groups = numbered(work_a["family"], place), numbered(work_b["family"], place)
    sums = summed(work_a, work_b, *groups, len(place)) | main_precision(work_a, work_b, *groups, len(place))
    busy = pd.DataFrame({"kind": "busy", "name": families, **sums})
    overlap = pd.DataFrame({"name": [OVERLAP], "a_ns": [a.busy_ns - a.work_ns], "b_ns": [b.busy_ns - b.work_ns]})
    rest = [_by_change(_without_work(rows, kind)) for kind, rows in (("overlap", overlap), ("idle", idle))]
    rows = pd.concat([_by_change(busy), *rest], ignore_index=True)
    change = b.latency_ns - a.latency_ns
    rows["share"] = rows["change_ns"] / change if change else 0.0
    return DIFFERENCE.frame({column.name: rows[column.name] for column in DIFFERENCE.columns})


def _without_work(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Add the other columns of DIFFERENCE to rows of overlap or idle time."""
    unknown = dict.fromkeys(("a_flops", "b_flops", "a_bytes", "b_bytes"), np.nan)
    nothing: dict[str, Any] = {"a_kernels": 0.0, "b_kernels": 0.0, "a_precision": "", "b_precision": ""}
    return rows.assign(kind=kind, change_ns=rows["b_ns"] - rows["a_ns"], **unknown, **nothing)


def idle_by_cause(a: StepSummary, b: StepSummary, of_a: Side, of_b: Side) -> pd.DataFrame:
    """Return the idle time of a step by cause, with columns name, a_ns and b_ns.

    Busy and idle time sum to the latency. Causes are those of the recorded gaps, scaled to a latency that was timed
    without the profiler.
    """
    causes = [_causes(summary.idle, side) for summary, side in ((a, of_a), (b, of_b))]
    names = sorted({*causes[0], *causes[1]})
    times_a, times_b = (np.array([each.get(name, 0.0) for name in names], dtype=float) for each in causes)
    return pd.DataFrame({"name": np.array(names, dtype=object), "a_ns": times_a, "b_ns": times_b})


def _causes(recorded: dict[str, float], side: Side) -> dict[str, float]:
    idle = side.latency_ns - side.busy_ns
    if idle < 0:
        return {PROFILER: idle}
    total = sum(recorded.values())
    if total <= 0:
        return {EDGES: idle}
    return {name: time * idle / total for name, time in recorded.items()}


def _by_change(rows: pd.DataFrame) -> pd.DataFrame:
    order = rows["change_ns"].abs().sort_values(ascending=False, kind="stable").index
    return rows.loc[order]
