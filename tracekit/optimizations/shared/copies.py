"""Copies between host and device in an op list."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.prediction.baseline import Baseline

_NOTABLE = 0.01


def copies(base: Baseline, pattern: str) -> "pd.Series[bool]":
    """The copies whose recorded name has the pattern; of none but the ops of the run before optimizations."""
    return base.copies.reindex(base.ops.index).fillna("").astype(str).str.contains(pattern)


def copied_bytes(base: Baseline) -> npt.NDArray[np.float64]:
    """Bytes that each op's copy moves over the link; 0: not known."""
    return np.array([cost.write_bytes if cost is not None else 0 for cost in base.ops.cost], dtype=np.float64)


def gains(base: Baseline, rows: "pd.Series[bool]") -> bool:
    """Whether these copies take a notable part of the step."""
    return float(base.ops.kernel_ns[rows].sum()) > _NOTABLE * base.unprofiled_ns


def together(ops: pd.DataFrame, rows: "pd.Series[bool]", hidden: float) -> pd.DataFrame:
    """The op list with this part of the other work's time hiding the rows'."""
    moved, rest = float(ops.kernel_ns[rows].sum()), float(ops.kernel_ns[~rows].sum())
    left = max(0.0, moved - hidden * rest) / moved if moved else 1.0
    return ops.assign(kernel_ns=ops.kernel_ns.where(~rows, ops.kernel_ns * left))
