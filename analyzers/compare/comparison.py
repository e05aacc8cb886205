"""The result of a comparison, and the mean step of a run that it compares.

A mean step is small enough to be kept in a file, and sufficient to explain a difference.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import NO_OP, OF_GRAPH, UNKNOWN_CAUSE, in_steps, is_communication
from tracekit.analyzers.core import Displayed, tables
from tracekit.analyzers.cost import generated
from tracekit.analyzers.results import Analysis, Source
from tracekit.analyzers.trace import Latency


@dataclass(frozen=True)
class Side:
    """One of the two runs. Times are means of one step and one device."""

    name: str
    """Name of its file or folder."""
    source: Source
    steps: int
    """Number of steps in the trace; 1 for a trace without steps."""
    latency_ns: float
    latency_from: Literal["unprofiled", "estimated", "trace"]
    """unprofiled: timed (or simulated) without a profiler; estimated: that in the trace, without the time that is
    estimated for the profiler; trace: that in the trace."""
    spread_ns: tuple[float, float] | None
    """10th and 90th percentile of the unprofiled latency."""
    work_ns: float
    """Sum of the durations of all work; overlapping work counts in full."""
    busy_ns: float
    """Time in which the device runs any work."""
    kernels: float
    flops: float
    """NaN if none are known."""
    graph_share: float
    """Fraction of kernels that CUDA graphs launched, 0 to 1."""


@dataclass(frozen=True)
class Comparison(Displayed):
    """A comparison of B with A. All tables are for one step; changes are B minus A."""

    a: Side
    b: Side
    difference: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    ops: pd.DataFrame = field(repr=False)
    kernels: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    """Sentences on why the two are not fully comparable."""

    @property
    def speedup(self) -> float:
        """Latency of A over latency of B; B is faster if it is above 1."""
        return self.a.latency_ns / self.b.latency_ns

    @property
    def change_ns(self) -> float:
        return self.b.latency_ns - self.a.latency_ns

    @property
    def within_spread(self) -> bool:
        """Whether each latency lies between the 10th and 90th percentile of the other run's."""
        if self.a.spread_ns is None or self.b.spread_ns is None:
            return False
        pairs = ((self.a.latency_ns, self.b.spread_ns), (self.b.latency_ns, self.a.spread_ns))
        return all(low <= latency <= high for latency, (low, high) in pairs)


_TABLES = tables(__file__)
DIFFERENCE = _TABLES["difference"]
COMPARED_LAYERS = _TABLES["compared_layers"]
COMPARED_OPS = _TABLES["compared_ops"]
COMPARED_KERNELS = _TABLES["compared_kernels"]


EDGES = "edges"
"""Idle time before a step's first work and after its last."""
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
    estimated_ns: float | None = None
    """Latency without the profiler, as predictions estimate it; None: no prediction starts from a profiled step."""


def summarize(analysis: Analysis) -> StepSummary:
    """Return the mean step of a run."""
    start = analysis.predicted_from
    return StepSummary(
        source=analysis.source,
        unprofiled=analysis.latency.unprofiled,
        wall_ns=float(analysis.timeline.steps["wall_ns"].mean()),
        steps=steps_of(analysis),
        graph_share=float((analysis.work["graph"] >= 0).mean()),
        work=step_work(analysis),
        layers=analysis.layers[["path", "type", "parent"]],
        idle=_idle(analysis),
        estimated_ns=start.unprofiled_us * 1e3 if start and start.timed == "profiled" else None,
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
    by_cause = inside["duration_ns"].groupby(inside["cause"].astype(object).replace("", UNKNOWN_CAUSE)).sum()
    times = {str(name): float(time) for name, time in by_cause.items()}
    steps = analysis.timeline.steps
    wall = float(steps["wall_ns"].sum()) * devices_of(analysis) if steps_of(analysis) else 0.0
    around = wall - float(steps["busy_ns"].sum()) - sum(times.values())
    return times | ({EDGES: around} if around > 0 else {})


COMMUNICATION = "communication"
OTHER = "other"


def step_work(analysis: Analysis) -> pd.DataFrame:
    """Return the work inside steps (all work if no step contains any), with one row per work item.

    The columns ns (duration), busy_ns (share of the busy time), kernels, flops and bytes are divided by the numbers of
    steps and devices, so that they sum to one step of one device. family, kernel, op and precision are text; the op of
    a generated kernel is the ops that it fuses. layer is the row in the layers, -1 for none. signature is the FLOPs of
    the whole op, 0 if unknown.
    """
    work = analysis.work[in_steps(analysis.work)]
    parts = 1.0 / (steps_of(analysis) * devices_of(analysis))
    return pd.DataFrame(
        {
            "ns": work["duration_ns"].to_numpy(dtype=float) * parts,
            "busy_ns": work["busy_ns"].to_numpy(dtype=float) * parts,
            "kernels": parts,
            "flops": work["flops"].to_numpy() * parts,
            "bytes": work["bytes"].to_numpy() * parts,
            "family": _families(work),
            "kernel": work["name"].astype(object).to_numpy(),
            "op": _ops(work),
            "precision": work["precision"].astype(object).to_numpy(),
            "layer": work["layer"].to_numpy(),
            "signature": _signatures(work),
        }
    )


def steps_of(analysis: Analysis) -> int:
    return max(1, len(analysis.timeline.steps))


def devices_of(analysis: Analysis) -> int:
    return max(1, analysis.work["device"].nunique())


def _families(work: pd.DataFrame) -> npt.NDArray[np.object_]:
    family = work["family"].astype(object).to_numpy()
    copies = work["category"].isin(["memcpy", "memset"]).to_numpy()
    known = np.where(family != "", family, np.where(copies, "copy", OTHER))
    return np.where(is_communication(work["name"]), COMMUNICATION, known)


def _ops(work: pd.DataFrame) -> npt.NDArray[np.object_]:
    codes, names = pd.factorize(work["name"])
    fused = np.array([fusion.label if (fusion := generated(str(name))) else "" for name in names], dtype=object)[codes]
    op = work["op_name"].astype(object).to_numpy()
    nameless = np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, NO_OP)
    return np.where(fused != "", fused, np.where(op != "", op, nameless))


def _signatures(work: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the FLOPs of each item's op call; items of an op row in one step belong to one call."""
    key = [work["cost_op"], work["step"], work["launch"].where(work["captured"] >= 0, -1)]
    return np.rint(work["flops"].fillna(0.0).groupby(key).transform("sum").to_numpy())
