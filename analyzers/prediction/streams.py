"""Lower bound of a step's busy time if its streams run concurrently."""

import numpy as np
import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.op_columns import OpList


def side_by_side(ops: OpList, work: pd.DataFrame, gpu: GPU) -> float:
    """Return the least fraction (0 to 1) of a step's busy time that its work takes if nothing delays its streams.

    Each stream runs its own work (WORK) in order. Together, streams move no more bytes and do no more FLOPs than the
    GPU can.
    """
    busy = float(ops.kernel_ns.sum())
    if work["stream"].nunique() < 2 or not busy:
        return 1.0
    costs = [cost for cost in ops.cost if cost is not None]
    moving = sum(cost.bytes for cost in costs) / gpu.bandwidth
    computing = sum(cost.flops / gpu.peak_flops(cost.precision) for cost in costs if cost.precision)
    longest = float(work.groupby("stream")["duration_ns"].sum().max())
    return float(np.clip(max(longest, moving * 1e9, computing * 1e9) / busy, 0.0, 1.0))
