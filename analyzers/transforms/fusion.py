"""Chains of memory-bound ops that one kernel could replace."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows, each
from tracekit.analyzers.transforms.outcome import Outcome, pick

_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
_REDUCES = 2
INTERMEDIATES_SAVED = Interval(0.3, 0.95, 1.0)
"""Fraction of the traffic between neighbouring ops that fusion removes; some intermediates are needed later. Compiling
GPT-2's prefill (512 tokens, H200) removed nearly all of it; published results of older versions, a third."""
READ_AGAIN = Interval(0.0, 0.0, 1.0)
"""Fraction of a chain's other inputs that its one kernel has read before, as in `x * sigmoid(x)`. Op lists do not
identify tensors: either none of these inputs was read before, or all that are as large as an earlier input or result.
"""
FUSED_KERNEL = Interval(1.3, 1.0, 0.9)
"""Time of a generated kernel, relative to that of a library kernel that moves as many bytes."""


def chains(ops: OpList, *, within_layer: bool, among: Rows | None = None) -> npt.NDArray[np.int64]:
    """Number the chain of each op: neighbours with the same number can be one kernel.

    A chain holds only memory-bound ops (that `among` selects), and at most one reduction. Copies that the host waits
    for cross the bus, and are in none. With `within_layer`, it stays in one module.
    """
    kinds = each(_kind, ops.cost, dtype=np.int8)
    category = ops.category
    fusible = (kinds > 0) & ((category == "kernel") | ((category == "memcpy") & ~ops.sync))
    if among is not None:
        fusible &= among
    joins = fusible[1:] & fusible[:-1]
    if within_layer:
        layers = ops.layer
        joins &= layers[1:] == layers[:-1]
    alone = np.append(True, ~joins)[: len(ops)]
    reducing = kinds == _REDUCES
    reductions = np.cumsum(reducing)
    before = np.maximum.accumulate(np.where(alone, reductions - reducing, 0))
    return np.cumsum(alone | (reducing & (reductions - before > 1)))


def _kind(cost: Cost | None) -> int:
    """Return the op's kind; 0 is never part of a chain."""
    if cost is None:
        return 0
    return _REDUCES if cost.family in _REDUCING else int(cost.family in _POINTWISE)


def fused(
    ops: OpList,
    gpu: GPU,
    outcome: Outcome,
    *,
    within_layer: bool,
    among: Rows | None = None,
) -> OpList:
    """Replace each chain with one op, which takes as much host time as the ops it replaces."""
    chain = chains(ops, within_layer=within_layer, among=among)
    first = np.flatnonzero(np.diff(chain, prepend=-1))
    length = np.diff(first, append=len(ops))
    cost = ops.cost
    after, ratio = cost[first], np.ones(len(first))
    fused_costs: dict[tuple[int, ...], tuple[Cost, float]] = {}
    for i in np.flatnonzero(length > 1).tolist():
        members = cost[first[i] : first[i] + length[i]].tolist()
        same = tuple(map(id, members))
        if same not in fused_costs:
            fused_costs[same] = _one_kernel(members, gpu, outcome)
        after[i], ratio[i] = fused_costs[same]
    host = np.add.reduceat(ops.host_ns, first)
    return ops[first].assign(
        host_ns=host,
        kernel_ns=np.add.reduceat(ops.kernel_ns, first) * ratio,
        launches=np.where(length > 1, 1, ops.launches[first]),
        sync=np.logical_or.reduceat(ops.sync, first),
        cost=after,
    )


def _one_kernel(costs: list[Cost], gpu: GPU, outcome: Outcome) -> tuple[Cost, float]:
    """Return the cost of a chain as one kernel, and its time relative to that of the chain."""
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
    """Return the bytes of other inputs that may be a tensor which the chain has read or written before."""
    known, again = {costs[0].read_bytes, costs[0].write_bytes}, 0
    for before, cost in pairwise(costs):
        further = cost.read_bytes - min(before.write_bytes, cost.read_bytes)
        again += further if further in known else 0
        known |= {cost.write_bytes, further}
    return again
