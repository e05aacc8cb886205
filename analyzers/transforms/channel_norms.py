"""Splits norms over channels in training: generated code computes statistics over all sequences before it uses them."""

from dataclasses import replace

import numpy as np

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Norm, Reduce
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.op_columns import OpList, joined
from tracekit.analyzers.transforms.by_cost import where
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.analyzers.transforms.retime import retimed

STATISTICS = "statistics of channels"
"""Name of the op that computes the statistics; they are complete before anything reads them."""
_LAUNCHES, _BACKWARD = 2, 3
"""Kernels of the statistics: first of parts of the sequences, then of all parts. Each of the gradient's two sums has
its own second kernel."""


def statistics_first(ops: OpList, gpu: GPU, outcome: Outcome) -> OpList:
    """Return the op list with each norm over channels split into its statistics and the pointwise op that uses them,
    which keeps the norm's index."""
    rows = where(ops, _is_over_channels)
    if not rows.any():
        return ops
    norms, places = ops[rows], np.flatnonzero(rows)
    gradients = where(norms, lambda cost: cost is not None and isinstance(cost.work, Norm) and cost.work.backward)
    statistics = retimed(norms, _statistics, gpu, outcome).assign(
        name=STATISTICS,
        launches=np.where(gradients, _BACKWARD, _LAUNCHES),
        index=ops.index.max() + 1 + np.arange(len(norms)),
    )
    used = retimed(norms, _use, gpu, outcome).assign(host_ns=0.0, launches=1)
    order = np.argsort(np.concatenate([np.flatnonzero(~rows), places, places]), kind="stable")
    return joined(ops[~rows], statistics, used)[order]


def _is_over_channels(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Norm) and cost.work.channels > 0


def _statistics(cost: Cost) -> Cost:
    channels = cost.work.channels if isinstance(cost.work, Norm) else 0
    written = round(2 * channels * ELEMENT_BYTES[cost.precision])
    rows = round(cost.read_bytes / ELEMENT_BYTES[cost.precision] / channels)
    return replace(cost, write_bytes=written, family="reduction", access="rows", row=rows, work=Reduce())


def _use(cost: Cost) -> Cost:
    return Cost(cost.flops, cost.read_bytes, cost.write_bytes, "pointwise", cost.precision)
