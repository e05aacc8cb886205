"""The batch sizes at which GEMMs become compute-bound, and at which memory is full."""

import numpy as np

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.baseline import Baseline


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
