"""GEMMs of a mixture of experts: a loop over the experts, or one kernel for all of them."""

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList, changed
from tracekit.analyzers.transforms.by_cost import each, where, which
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


def in_one_kernel(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
    """Return `ops`, the base's op list in other dtypes, with each loop over experts replaced by one kernel if the dtype
    has one."""
    loops = where(ops, lambda cost: _has_one_kernel(cost, base.gpu)) & (ops.launches > LAUNCHES)
    if not loops.any():
        return ops
    of_loop = which(ops.call, set(ops.call[loops]).__contains__)
    reads = of_loop & (ops.category == "memcpy") & ops.sync
    modelled = each(lambda cost: estimate_ns(cost, base.gpu), ops.cost[loops], dtype=float)
    fewer = ops.assign(
        kernel_ns=changed(ops.kernel_ns, loops, pick(KERNEL_ERROR, outcome) * modelled),
        host_ns=changed(ops.host_ns, loops, LAUNCHES * plain_launch_ns(base)),
        launches=changed(ops.launches, loops, LAUNCHES),
    )
    return fewer[~reads]


def _has_one_kernel(cost: Cost | None, gpu: GPU) -> bool:
    if cost is None or not isinstance(cost.work, Product) or not cost.work.routed:
        return False
    return cost.precision == "bf16" and gpu.vendor == "nvidia" and gpu.compute_capability >= _ONE_KERNEL
