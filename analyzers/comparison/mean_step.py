"""The mean step of a run for comparisons: small enough to be kept in a file, and sufficient to explain a difference."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.comparison.step_work import devices_of, step_work, steps_of
from tracekit.analyzers.results import Analysis, Source

EDGES = "edges"
"""Idle time before a step's first work and after its last."""
UNKNOWN = "unknown"
_SUMS = ("ns", "busy_ns", "kernels", "flops", "bytes")


@dataclass(frozen=True)
class StepSummary:
    """The mean step of a run: its work, its layers and its idle time."""

    source: Source
    unprofiled: Latency | None
    wall_ns: float
    """Mean wall time of a step in the trace."""
    steps: int
    graph_share: float
    """Fraction of the kernels that CUDA graphs launched."""
    work: pd.DataFrame = field(repr=False)
    """Work with the columns that `step_work` returns."""
    layers: pd.DataFrame = field(repr=False)
    """The columns path, type and parent of LAYERS."""
    idle: dict[str, float]
    """Idle time as recorded, in ns, of all steps and devices, by cause."""


def summarize(analysis: Analysis) -> StepSummary:
    """Return the mean step of a run."""
    return StepSummary(
        source=analysis.source,
        unprofiled=analysis.latency.unprofiled,
        wall_ns=float(analysis.timeline.steps["wall_ns"].mean()),
        steps=steps_of(analysis),
        graph_share=float((analysis.work["graph"] >= 0).mean()),
        work=step_work(analysis),
        layers=analysis.layers[["path", "type", "parent"]],
        idle=_idle(analysis),
    )


def condensed(work: pd.DataFrame) -> pd.DataFrame:
    """Sum the rows that are equal in all other columns. Unknown FLOPs and bytes stay unknown."""
    keys = [name for name in work.columns if name not in _SUMS]
    known = [np.isfinite(work[name]) for name in ("flops", "bytes")]
    grouped = work.assign(has_flops=known[0], has_bytes=known[1]).groupby(
        [*keys, "has_flops", "has_bytes"], observed=True, sort=False
    )
    summed = grouped[list(_SUMS)].sum(min_count=1).reset_index()
    return summed[list(work.columns)]


def _idle(analysis: Analysis) -> dict[str, float]:
    gaps = analysis.gaps
    inside = gaps[gaps["step"] >= 0] if len(gaps) else gaps
    by_cause = inside["duration_ns"].groupby(inside["cause"].astype(object).replace("", UNKNOWN)).sum()
    times = {str(name): float(time) for name, time in by_cause.items()}
    steps = analysis.timeline.steps
    wall = float(steps["wall_ns"].sum()) * devices_of(analysis) if steps_of(analysis) else 0.0
    around = wall - float(steps["busy_ns"].sum()) - sum(times.values())
    return times | ({EDGES: around} if around > 0 else {})
