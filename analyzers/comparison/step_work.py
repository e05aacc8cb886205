"""Prepares the work of a mean step for a comparison."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.breakdown.op_tables import NO_OP, OF_GRAPH
from tracekit.analyzers.breakdown.whole_steps import in_steps
from tracekit.analyzers.costs.generated import generated
from tracekit.analyzers.results import Analysis

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
