"""The work of a mean step, in the terms in which two runs are compared."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.breakdown.op_tables import NO_OP, OF_GRAPH
from tracekit.analyzers.costs.generated import generated
from tracekit.analyzers.results import Analysis

COMMUNICATION = "communication"
OTHER = "other"


def step_work(analysis: Analysis) -> pd.DataFrame:
    """The work inside steps (all of it, where no step holds any), one row a piece of work, with these columns.

    ns, busy_ns, kernels, flops, bytes: divided by steps and devices, so that a column sums to one step of one device;
    ns is the work's own duration, busy_ns its share of the busy time. family, kernel, op, precision: text; the op of a
    generated kernel is what it fuses. layer: row in the layers; -1: none. signature: FLOPs of its whole op; 0: unknown.
    """
    work = analysis.work[in_steps(analysis)]
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


def in_steps(analysis: Analysis) -> npt.NDArray[np.bool_]:
    inside = (analysis.work["step"] >= 0).to_numpy()
    return inside if inside.any() else ~inside


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
    fused = np.array([said.label if (said := generated(str(name))) else "" for name in names], dtype=object)[codes]
    op = work["op_name"].astype(object).to_numpy()
    nameless = np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, NO_OP)
    return np.where(fused != "", fused, np.where(op != "", op, nameless))


def _signatures(work: pd.DataFrame) -> npt.NDArray[np.float64]:
    """FLOPs of the item's op in one call; items of one op in one step are of one call."""
    key = [work["cost_op"], work["step"], work["launch"].where(work["captured"] >= 0, -1)]
    return np.rint(work["flops"].fillna(0.0).groupby(key).transform("sum").to_numpy())
