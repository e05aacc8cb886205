"""The batch sizes at which GEMMs become compute-bound, and at which memory is full."""

import numpy as np

from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import GPU, Cost, Product, estimate_ns
from tracekit.analyzers.predict.op_columns import OpList, changed
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.by_cost import Outcome, Rows, each, pick, plain_launch_ns, where, which


def compute_bound_from(base: Baseline) -> int | None:
    """Return the smallest batch size at which compute-bound GEMMs hold at least half of the weights' bytes.

    The roofline with sustained rates decides. None: the batch size is unknown, or no batch is large enough.
    """
    costs = [cost for cost in base.ops.cost if cost is not None and cost.weight_bytes and cost.flops]
    if not base.batch_size or not costs:
        return None
    turning = np.array([_turning_factor(cost, base.gpu) for cost in costs])
    order = np.argsort(turning)
    weights = np.cumsum(np.array([cost.weight_bytes for cost in costs])[order])
    median = turning[order][np.searchsorted(weights, weights[-1] / 2)]
    return max(1, int(np.ceil(median * base.batch_size))) if np.isfinite(median) else None


def largest_that_fits(base: Baseline) -> int | None:
    """Return the largest batch size whose peak fits in the GPU's memory; 0: none fits, None: not known."""
    memory = base.memory
    if memory is None:
        return None
    fixed = memory.weights + memory.buffers + memory.optimizer_state + memory.workspaces
    if fixed + memory.gradients + max(memory.tied_gradients, memory.temporaries) > base.gpu.memory_bytes:
        return 0
    if not base.batch_size:
        return None
    a_sequence = (memory.kv_cache + memory.activations + memory.loss) / base.batch_size
    return max(0, int((base.gpu.memory_bytes - fixed) / a_sequence)) if a_sequence else None


def streams_weights(cost: Cost, gpu: GPU) -> bool:
    """Return whether reading its weights takes as long as the whole op, so that more rows cost next to nothing."""
    return cost.weight_bytes > 0 and _turning_factor(cost, gpu) > 1


def _turning_factor(cost: Cost, gpu: GPU) -> float:
    """Return the growth of the batch at which arithmetic takes as long as moving weights and activations."""
    rate = gpu.bandwidth * gpu.copy_efficiency
    arithmetic = cost.flops / gpu.sustained_flops(cost.precision)
    moving = (cost.bytes - cost.weight_bytes) / rate
    return cost.weight_bytes / rate / (arithmetic - moving) if arithmetic > moving else np.inf


_ONE_KERNEL = (9, 0)
"""Compute capability from which `torch._grouped_mm` has a separate kernel for bf16. Otherwise it loops over the
experts, and first reads their sizes back (aten/src/ATen/native/cuda/GroupedBlas.cpp)."""
LAUNCHES = 2
"""The kernel, and the one before it that writes the first row of each expert."""
_KNOWN = outcomes(__file__)
KERNEL_ERROR = _KNOWN["kernel_error"]
"""Real time of that kernel relative to its modelled time: the model assumes that all experts have equally many rows."""


def experts_in_one_kernel(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
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


_BY_VALUES = (
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_consecutive",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::repeat_interleave",
)
FIXED = "aten::topk"
"""The op that replaces them if the number of rows is fixed."""


def rows_by_values(ops: OpList) -> Rows:
    """Select the ops of an op list that have outputs whose shapes depend on values."""
    return which(ops.name, _BY_VALUES.__contains__)
