"""Chains of memory-bound ops that one kernel could do."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.costs.call import Cost
from analyzers.hardware import GPU
from analyzers.kernel_time import estimate_ns
from analyzers.results import Interval
from tracekit.optimizations.base import Outcome, pick

_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
INTERMEDIATES_SAVED = Interval(0.6, 0.85, 1.0)
"""Share of the traffic between neighbours that fusing really removes: some intermediates are needed later."""
FUSED_HOST = Interval(3.0, 2.0, 1.2)
"""Host time of launching one fused kernel over that of a plain op: Triton's launcher is Python."""


def chains(ops: pd.DataFrame, *, within_layer: bool) -> npt.NDArray[np.int64]:
    """The chain of each op: neighbours with one number can be one kernel.

    A chain holds memory-bound ops only, and at most one that reduces. With `within_layer`, it stays in one module.
    """
    families = [cost.family if cost else "" for cost in ops.cost]
    layers, launches = ops.layer.to_numpy(), ops.category.to_numpy() == "kernel"
    chain, reductions, numbers = 0, 0, np.zeros(len(ops), dtype=np.int64)
    for i, family in enumerate(families):
        fusible = launches[i] and family in _POINTWISE + _REDUCING
        joins = i > 0 and fusible and launches[i - 1] and families[i - 1] in _POINTWISE + _REDUCING
        joins = joins and not (within_layer and layers[i] != layers[i - 1])
        joins = joins and not (family in _REDUCING and reductions)
        chain, reductions = (chain, reductions) if joins else (chain + 1, 0)
        reductions += family in _REDUCING
        numbers[i] = chain
    return numbers


def fused(ops: pd.DataFrame, gpu: GPU, outcome: Outcome, *, within_layer: bool) -> pd.DataFrame:
    """The op list with every chain as one op, never slower on the host than the ops it replaces."""
    chain = chains(ops, within_layer=within_layer)
    first = np.flatnonzero(np.diff(chain, prepend=-1))
    stops = np.append(first[1:], len(ops))
    result = ops.iloc[first].copy()
    long = np.flatnonzero(stops - first > 1)
    for row in long:
        members = ops.iloc[first[row] : stops[row]]
        costs = list(members.cost)
        one = _fused_cost(costs, pick(INTERMEDIATES_SAVED, outcome))
        ratio = min(1.0, estimate_ns(one, gpu) / sum(estimate_ns(cost, gpu) for cost in costs))
        result.iloc[row, [result.columns.get_loc(c) for c in ("host_ns", "kernel_ns", "launches", "sync")]] = [
            min(members.host_ns.mean() * pick(FUSED_HOST, outcome), members.host_ns.sum()),
            members.kernel_ns.sum() * ratio,
            1,
            members.sync.any(),
        ]
        result.iat[row, result.columns.get_loc("cost")] = one
    return result


def _fused_cost(costs: list[Cost], saved: float) -> Cost:
    between = sum(min(a.write_bytes, b.read_bytes) for a, b in pairwise(costs))
    reads = sum(cost.read_bytes for cost in costs) - saved * between
    writes = sum(cost.write_bytes for cost in costs) - saved * between
    return Cost(
        flops=sum(cost.flops for cost in costs),
        read_bytes=round(max(reads, 0)),
        write_bytes=round(max(writes, costs[-1].write_bytes)),
        family="pointwise",
        precision=costs[-1].precision,
    )
