"""Finds copies between host and device in an op list, and overlaps them."""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.optimizations.shared.host_work import NOTABLE

SLOWER = Interval(4.0, 1.1, 1.0)
"""Time of a pinned copy relative to its modelled time. On hosts of an H100, scripts copied at 50 GB/s on most days, at
13 on another, and once no faster than from pageable memory, at 9."""


def copies(base: Baseline, pattern: str) -> Rows:
    """Return the copies whose recorded name matches the pattern. Only ops that the trace recorded can match."""
    return base.recorded.copies_like(base.ops, pattern)


def copied_bytes(base: Baseline) -> npt.NDArray[np.float64]:
    """Return the bytes that each op's copy moves over the link; 0 if unknown."""
    return np.array([cost.write_bytes if cost is not None else 0 for cost in base.ops.cost], dtype=np.float64)


def gains(base: Baseline, rows: Rows) -> bool:
    """Return whether these copies take a notable fraction of the step."""
    return float(base.ops.kernel_ns[rows].sum()) > NOTABLE * base.unprofiled_ns


def together(ops: OpList, rows: Rows, hidden: float) -> OpList:
    """Return the op list in which this fraction of the other work's time hides the rows."""
    moved, rest = float(ops.kernel_ns[rows].sum()), float(ops.kernel_ns[~rows].sum())
    left = max(0.0, moved - hidden * rest) / moved if moved else 1.0
    return ops.assign(kernel_ns=np.where(rows, ops.kernel_ns * left, ops.kernel_ns))
