"""Matrix products of a mixture of experts: a loop over the experts, or one kernel for all of them."""

import numpy as np
import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.transforms.by_cost import Rows, each, where
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns

_ONE_KERNEL = (9, 0)
"""Compute capability from which `torch._grouped_mm` has a separate kernel for bf16. Otherwise it loops over the
experts, and first reads their sizes back (aten/src/ATen/native/cuda/GroupedBlas.cpp)."""
LAUNCHES = 2
"""The kernel, and the one before it that writes the first row of each expert."""
KERNEL_ERROR = Interval(1.6, 1.2, 1.0)
"""Real time of that kernel relative to its modelled time: the model assumes that all experts have equally many rows.
Not measured."""


def in_one_kernel(base: Baseline, ops: pd.DataFrame, outcome: Outcome) -> pd.DataFrame:
    """Return `ops`, the base's op list in other dtypes, with each loop over experts replaced by one kernel if the dtype
    has one."""
    loops = where(ops, lambda cost: _has_one_kernel(cost, base.gpu)) & (ops.launches.to_numpy() > LAUNCHES)
    if not loops.any():
        return ops
    of_loop = ops.call.isin(ops.call[loops].unique()).to_numpy()
    reads = of_loop & (ops.category == "memcpy").to_numpy() & ops.sync.to_numpy()
    modelled = each(lambda cost: estimate_ns(cost, base.gpu), ops.cost[loops], dtype=float)
    changed = ops.assign(
        kernel_ns=_put(ops.kernel_ns, loops, pick(KERNEL_ERROR, outcome) * modelled),
        host_ns=_put(ops.host_ns, loops, np.full(len(modelled), LAUNCHES * plain_launch_ns(base))),
        launches=_put(ops.launches, loops, np.full(len(modelled), LAUNCHES)),
    )
    return changed[~reads]


def _has_one_kernel(cost: Cost | None, gpu: GPU) -> bool:
    if cost is None or not isinstance(cost.work, Product) or not cost.work.routed:
        return False
    return cost.precision == "bf16" and gpu.vendor == "nvidia" and gpu.compute_capability >= _ONE_KERNEL


def _put(column: pd.Series, rows: Rows, values: np.ndarray) -> pd.Series:
    changed = column.copy()
    changed[rows] = values
    return changed
