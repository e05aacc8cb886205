"""Chains of memory-bound ops that one kernel could do."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.transforms.by_cost import each
from tracekit.analyzers.transforms.outcome import Outcome, pick

_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
_REDUCES = 2
INTERMEDIATES_SAVED = Interval(0.3, 0.95, 1.0)
"""Share of the traffic between neighbours that fusing really removes: some intermediates are needed later. Compiling
GPT-2's prefill (512 tokens, H200) removed nearly all of it; published results of older versions, a third."""
READ_AGAIN = Interval(0.0, 0.0, 1.0)
"""Share of a chain's further inputs that the one kernel holds already, as in `x * sigmoid(x)`. Op lists do not say
which tensor is which: it is none, or all that are as large as an input or a result before them."""
FUSED_KERNEL = Interval(1.3, 1.0, 0.9)
"""Time of a generated kernel over that of a library's that moves as much."""


def chains(ops: pd.DataFrame, *, within_layer: bool, among: "pd.Series[bool] | None" = None) -> npt.NDArray[np.int64]:
    """The chain of each op: neighbours with one number can be one kernel.

    A chain holds memory-bound ops only (`among` these), and at most one that reduces. With `within_layer`, it stays in
    one module.
    """
    kinds = each(_kind, ops.cost, dtype=np.int8)
    fusible = (kinds > 0) & (ops.category.to_numpy() == "kernel")
    if among is not None:
        fusible &= among.to_numpy()
    joins = fusible[1:] & fusible[:-1]
    if within_layer:
        layers = ops.layer.to_numpy()
        joins &= layers[1:] == layers[:-1]
    alone = np.append(True, ~joins)[: len(ops)]
    reducing = kinds == _REDUCES
    reductions = np.cumsum(reducing)
    before = np.maximum.accumulate(np.where(alone, reductions - reducing, 0))
    return np.cumsum(alone | (reducing & (reductions - before > 1)))


def _kind(cost: Cost | None) -> int:
    """0: never part of a chain."""
    if cost is None:
        return 0
    return _REDUCES if cost.family in _REDUCING else int(cost.family in _POINTWISE)


def fused(
    ops: pd.DataFrame,
    gpu: GPU,
    outcome: Outcome,
    *,
    within_layer: bool,
    among: "pd.Series[bool] | None" = None,
) -> pd.DataFrame:
    """The op list with every chain as one op, which takes the host as long as the ops it replaces."""
    chain = chains(ops, within_layer=within_layer, among=among)
    first = np.flatnonzero(np.diff(chain, prepend=-1))
    length = np.diff(first, append=len(ops))
    cost = ops.cost.to_numpy()
    after, ratio = cost[first], np.ones(len(first))
    found: dict[tuple[int, ...], tuple[Cost, float]] = {}
    for i in np.flatnonzero(length > 1).tolist():
        members = cost[first[i] : first[i] + length[i]].tolist()
        same = tuple(map(id, members))
        if same not in found:
            found[same] = _one_kernel(members, gpu, outcome)
        after[i], ratio[i] = found[same]
    host = np.add.reduceat(ops.host_ns.to_numpy(), first)
    return ops.iloc[first].assign(
        host_ns=host,
        kernel_ns=np.add.reduceat(ops.kernel_ns.to_numpy(), first) * ratio,
        launches=np.where(length > 1, 1, ops.launches.to_numpy()[first]),
        sync=np.logical_or.reduceat(ops.sync.to_numpy(), first),
        cost=pd.Series(after, index=ops.index[first], dtype=object),
    )


def _one_kernel(costs: list[Cost], gpu: GPU, outcome: Outcome) -> tuple[Cost, float]:
    """What a chain costs as one kernel, and its time over that of the chain."""
    one = fused_cost(costs, outcome)
    error = pick(FUSED_KERNEL, outcome)
    return one, min(1.0, error * estimate_ns(one, gpu) / sum(estimate_ns(cost, gpu) for cost in costs))


def fused_cost(costs: list[Cost], outcome: Outcome) -> Cost:
    saved = pick(INTERMEDIATES_SAVED, outcome)
    between = sum(min(a.write_bytes, b.read_bytes) for a, b in pairwise(costs))
    again = pick(READ_AGAIN, outcome) * _perhaps_again(costs)
    reads = sum(cost.read_bytes for cost in costs) - saved * between - again
    writes = sum(cost.write_bytes for cost in costs) - saved * between
    return Cost(
        flops=sum(cost.flops for cost in costs),
        read_bytes=round(max(reads, 0)),
        write_bytes=round(max(writes, costs[-1].write_bytes)),
        family="pointwise",
        precision=costs[-1].precision,
    )


def _perhaps_again(costs: list[Cost]) -> int:
    """Bytes that ops of a chain read beside the result before them, and that may be a tensor that was there before."""
    known, again = {costs[0].read_bytes, costs[0].write_bytes}, 0
    for before, cost in pairwise(costs):
        further = cost.read_bytes - min(before.write_bytes, cost.read_bytes)
        again += further if further in known else 0
        known |= {cost.write_bytes, further}
    return again
