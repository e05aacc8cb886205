"""What one kernel reads and writes in place of a chain of memory-bound ops."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import GPU, Cost, estimate_ns
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.transforms.by_cost import Outcome, Rows, pick

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
