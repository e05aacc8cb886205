"""Norms over channels in training: generated code computes statistics of all sequences before it uses them."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Norm, Reduce
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.transforms.by_cost import where
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.analyzers.transforms.retime import retimed

STATISTICS = "statistics of channels"
"""Name of the op that computes them; they are complete before anything reads them."""
_LAUNCHES, _BACKWARD = 2, 3
"""Kernels of the statistics: of parts of the sequences, then of these parts; each of the gradient's two sums has its
own second kernel."""
_NUMBER = 8
"""Largest size of a single number in bytes."""


def statistics_first(ops: pd.DataFrame, gpu: GPU, outcome: Outcome) -> pd.DataFrame:
    """Return the op list with each norm over channels as its statistics and the pointwise op that uses them."""
    rows = where(ops, _is_over_channels)
    if not rows.any():
        return ops
    ops, rows = ops.reset_index(drop=True), rows.reset_index(drop=True)
    norms = ops[rows]
    gradients = where(norms, lambda cost: cost is not None and isinstance(cost.work, Norm) and cost.work.backward)
    statistics = retimed(norms, _statistics, gpu, outcome).assign(
        name=STATISTICS, launches=np.where(gradients, _BACKWARD, _LAUNCHES)
    )
    used = retimed(norms, _use, gpu, outcome).assign(host_ns=0.0, launches=1)
    return pd.concat([ops[~rows], statistics, used]).sort_index(kind="stable").reset_index(drop=True)


def counters(ops: pd.DataFrame) -> "pd.Series[bool]":
    """Select additions to a single number in place, such as a norm's count of batches."""
    return (ops.name == "aten::add_") & where(ops, lambda cost: cost is not None and cost.write_bytes <= _NUMBER)


def _is_over_channels(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Norm) and cost.work.channels > 0


def _statistics(cost: Cost) -> Cost:
    channels = cost.work.channels if isinstance(cost.work, Norm) else 0
    written = round(2 * channels * ELEMENT_BYTES[cost.precision])
    rows = round(cost.read_bytes / ELEMENT_BYTES[cost.precision] / channels)
    return replace(cost, write_bytes=written, family="reduction", access="rows", row=rows, work=Reduce())


def _use(cost: Cost) -> Cost:
    return Cost(cost.flops, cost.read_bytes, cost.write_bytes, "pointwise", cost.precision)
