"""Chains of memory-bound ops that one kernel could replace, and what it reads and writes in their place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.analyzers.core import numbers, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Cost, Norm, Reduce, estimate_ns
from tracekit.analyzers.fuse import SPELLED, Pass, Place
from tracekit.analyzers.predict.op_columns import OpList, joined
from tracekit.analyzers.predict.transforms.by_cost import Outcome, Rows, each, in_phase, pick, retimed, where

_KNOWN = outcomes(__file__)
INTERMEDIATES_SAVED = _KNOWN["intermediates_saved"]
"""Fraction of the traffic between neighbouring ops that fusion removes; some intermediates are needed later."""
READ_AGAIN = _KNOWN["read_again"]
"""Fraction of a chain's other inputs that its one kernel has read before, as in `x * sigmoid(x)`. Op lists do not
identify tensors."""
LONG = 30
"""Number of elementwise ops above which a chain is assumed to read its inputs again: code that computes hundreds of
values names few tensors. Not in the backward pass, where each op reads what it saved."""
IN_ONE_VALUE = _KNOWN["in_one_value"]
"""Ops of a long chain for each value that Inductor writes."""
READ_FOR_VALUE = _KNOWN["read_for_value"]
"""Most tensors that Inductor reads for one value."""


def fused_cost(costs: list[Cost], outcome: Outcome, *, saved_inputs: bool = False) -> Cost:
    """Return the cost of a chain as one kernel; `saved_inputs` says that its ops read what a forward pass saved."""
    saved = pick(INTERMEDIATES_SAVED, outcome)
    between = sum(min(a.write_bytes, b.read_bytes) for a, b in pairwise(costs))
    reads = sum(cost.read_bytes for cost in costs) - saved * between
    writes = sum(cost.write_bytes for cost in costs) - saved * between
    if not saved_inputs and sum(cost.family == "pointwise" for cost in costs) > LONG:
        written = sum(cost.write_bytes for cost in costs) / pick(IN_ONE_VALUE, outcome)
        reads, writes = min(reads, pick(READ_FOR_VALUE, outcome) * written), min(writes, written)
    else:
        reads -= pick(READ_AGAIN, outcome) * _perhaps_again(costs)
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
        again += further if further in known or (cost.estimated and further <= max(known)) else 0
        known |= {cost.write_bytes, further}
    return again


_READS = 0.6
"""Part of the bytes of an elementwise kernel that it reads: between one input (a half) and two (two thirds)."""


def costed_by_time(ops: OpList, elementwise: Rows, gpu: GPU) -> OpList:
    """Return the op list in which these kernels without recorded shapes move what the GPU can move in their time."""
    if not elementwise.any():
        return ops
    nothing = Cost(0, 0, 0, "pointwise", "fp32", estimated=True)
    moved = np.maximum(ops.kernel_ns - estimate_ns(nothing, gpu), 0.0) * 1e-9 * gpu.bandwidth / ops.launches
    cost = ops.cost.copy()
    for at in np.flatnonzero(elementwise).tolist():
        reads = round(_READS * moved[at])
        cost[at] = replace(nothing, read_bytes=reads, write_bytes=round(moved[at]) - reads)
    return ops.assign(cost=cost)


_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
_REDUCES = 2
_BY_LIBRARIES = ("sort", "top-k")
"""Access of ops that generated code calls a library for."""
STREAMED = numbers(__file__)["streamed"]
"""Time that moving a kernel's bytes may take, relative to the modelled time."""
FUSED_KERNEL = _KNOWN["fused_kernel"]
"""Time of a generated kernel, relative to that of a library kernel that moves as many bytes."""


def chains(ops: OpList, *, within_layer: bool, among: Rows | None = None) -> npt.NDArray[np.int64]:
    """Number the chain of each op: neighbours with the same number can be one kernel.

    A chain holds only memory-bound ops (that `among` selects), and at most one reduction. Copies that the host waits
    for cross the bus, and are in none; nor are sorts. With `within_layer`, it stays in one module.
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
    if cost is None or cost.access in _BY_LIBRARIES:
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
    """Replace each chain with one op, which takes as much host time as the ops it replaces.

    It saves the share of bytes that it no longer moves, and starts, of the time that moving bytes takes. What a kernel
    takes beyond the modelled time, for scattered reads or for computing, stays.
    """
    chain = chains(ops, within_layer=within_layer, among=among)
    first = np.flatnonzero(np.diff(chain, prepend=-1))
    length = np.diff(first, append=len(ops))
    cost, backward = ops.cost, np.logical_or.reduceat(in_phase(ops, "backward"), first)
    after, ratio = cost[first], np.ones(len(first))
    fused_costs: dict[tuple[int, ...], tuple[Cost, float]] = {}
    for i in np.flatnonzero(length > 1).tolist():
        members = cost[first[i] : first[i] + length[i]].tolist()
        same = (backward[i], *map(id, members))
        if same not in fused_costs:
            one = fused_cost(members, outcome, saved_inputs=bool(backward[i]))
            fused_costs[same] = one, _relative_ns(one, members, gpu, outcome)
        after[i], ratio[i] = fused_costs[same]
    host = np.add.reduceat(ops.host_ns, first)
    moved_ns = np.minimum(ops.kernel_ns, STREAMED * each(partial(_moved_ns, gpu), cost, dtype=float))
    return ops[first].assign(
        host_ns=host,
        kernel_ns=np.add.reduceat(ops.kernel_ns, first) - np.add.reduceat(moved_ns, first) * (1 - ratio),
        launches=np.where(length > 1, 1, ops.launches[first]),
        sync=np.logical_or.reduceat(ops.sync, first),
        cost=after,
    )


def _moved_ns(gpu: GPU, cost: Cost | None) -> float:
    return estimate_ns(cost, gpu) if cost else 0.0


def _relative_ns(one: Cost, costs: list[Cost], gpu: GPU, outcome: Outcome) -> float:
    """Return the time in which one kernel moves its bytes, relative to that of a chain that moves its own as fast."""
    error = pick(FUSED_KERNEL, outcome)
    return min(1.0, error * estimate_ns(one, gpu) / sum(estimate_ns(_use(cost), gpu) for cost in costs))


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
    moved = cost.read_bytes, cost.write_bytes
    return Cost(cost.flops, *moved, "pointwise", cost.precision, estimated=cost.estimated)


RowsByOp = Mapping[tuple[str, str, str], list[int]]
KERNEL = _KNOWN["kernel"]
"""Ratio of the real to the modelled time of a written kernel."""
TIMED = _KNOWN["timed"]
"""The same ratio for a kernel that was timed separately on the GPU, because caches and clocks differ in a step."""
FOUND = 0.5
"""Fraction of a group's ops that a trace must have. Some ops are recorded under the name of an op inside them, such as
zero_."""
CALLED = _KNOWN["called"]
"""Fraction that remains of the host time of a group's first op beyond a plain launch, because its module is still
called."""
KEPT = _KNOWN["kept"]
"""The same fraction for every op of a kernel that serves several modules, which are still called one by one, such as
packed projections."""
SHARED = ("packed_projections",)
"""Templates whose kernel serves several modules."""


def rows_of(ops: OpList) -> RowsByOp:
    """Return each layer, phase and op -> positions in the op list."""
    result: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for i, key in enumerate(zip(ops.layer.tolist(), ops.phase.tolist(), ops.name.tolist(), strict=True)):
        result[key[0], key[1], SPELLED.get(key[2], key[2])].append(i)
    return result


def with_kernels(ops: OpList, passes: Iterable[tuple[str, Pass, float]], plain_ns: float, outcome: Outcome) -> OpList:
    """Return the op list with kernels in place of the ops of each pass, at the first of these ops.

    Each pass comes with its template and the host time of its first launch; its other launches are plain ones.
    """
    rows, host, kernel, launches = rows_of(ops), *(getattr(ops, name).copy() for name in _CHANGED)
    sync, kept = ops.sync.copy(), np.ones(len(ops), dtype=bool)
    for template, one, launch_ns in passes:
        at = [i for i in positions(one.places, rows) if kept[i]]
        if len(at) < FOUND * len(one.places) or not at:
            continue
        first = at[0]
        called = (host[at] - plain_ns).clip(min=0.0)
        entered = called.sum() * pick(KEPT, outcome) if template in SHARED else called[0] * pick(CALLED, outcome)
        kernel[first] = kernel[at].sum() * one.ratio * pick(TIMED if one.timed else KERNEL, outcome)
        host[first] = entered + launch_ns + (one.launches - 1) * plain_ns
        launches[first], sync[first] = one.launches, sync[at].any()
        kept[at[1:]] = False
    changed = ops.assign(host_ns=host, kernel_ns=kernel, launches=launches, sync=sync)
    return changed[kept].renumbered()


_CHANGED = ("host_ns", "kernel_ns", "launches")


def positions(places: Iterable[Place], rows: RowsByOp) -> list[int]:
    """Return the positions of ops in launch order; ops that are not in the list are left out."""
    result = set()
    for place in places:
        there = rows.get((place.layer, place.phase, place.op), [])
        if len(there) >= place.among:
            result.add(there[place.number * len(there) // place.among])
    return sorted(result)
