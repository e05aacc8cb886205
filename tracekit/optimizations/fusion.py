"""Chains of memory-bound ops that one kernel could do."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.costs.call import Cost
from analyzers.hardware import GPU
from analyzers.interval import Interval
from analyzers.kernel_time import estimate_ns
from tracekit.optimizations.base import Outcome, pick

_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
INTERMEDIATES_SAVED = Interval(0.3, 0.95, 1.0)
"""Share of the traffic between neighbours that fusing really removes: some intermediates are needed later. Compiling
GPT-2's prefill (512 tokens, H200) removed nearly all of it; published results of older versions, a third."""
FUSED_KERNEL = Interval(1.3, 1.0, 0.9)
"""Time of a generated kernel over that of a library's that moves as much."""


def chains(ops: pd.DataFrame, *, within_layer: bool, among: "pd.Series[bool] | None" = None) -> npt.NDArray[np.int64]:
    """The chain of each op: neighbours with one number can be one kernel.

    A chain holds memory-bound ops only (`among` these), and at most one that reduces. With `within_layer`, it stays in
    one module.
    """
    families = [cost.family if cost else "" for cost in ops.cost]
    layers, launches = ops.layer.to_numpy(), ops.category.to_numpy() == "kernel"
    if among is not None:
        launches = launches & among.to_numpy()
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
    costs = np.split(ops.cost.to_numpy(), first[1:])
    length = np.array([len(members) for members in costs])
    after = [fused_cost(list(members), outcome) if len(members) > 1 else members[0] for members in costs]
    error = pick(FUSED_KERNEL, outcome)
    ratio = [_ratio(one, members, gpu, error) for one, members in zip(after, costs, strict=True)]
    host = np.add.reduceat(ops.host_ns.to_numpy(), first)
    return ops.iloc[first].assign(
        host_ns=host,
        kernel_ns=np.add.reduceat(ops.kernel_ns.to_numpy(), first) * ratio,
        launches=np.where(length > 1, 1, ops.launches.to_numpy()[first]),
        sync=np.logical_or.reduceat(ops.sync.to_numpy(), first),
        cost=pd.Series(after, index=ops.index[first], dtype=object),
    )


def _ratio(one: Cost | None, members: npt.NDArray[np.object_], gpu: GPU, error: float) -> float:
    if one is None or len(members) == 1:
        return 1.0
    return min(1.0, error * estimate_ns(one, gpu) / sum(estimate_ns(cost, gpu) for cost in members))


def fused_cost(costs: list[Cost], outcome: Outcome) -> Cost:
    saved = pick(INTERMEDIATES_SAVED, outcome)
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
