"""The ops that build the mask of unfused attention.

transformers compares four index vectors (batch, head, query, key: masking_utils.sdpa_mask) and turns the result into
numbers. It copies the lowest of these from the host, which waits for the copy. For fused attention it builds no mask
unless a sequence is padded (_ignore_causal_mask_sdpa): a flag says that attention is causal.
"""

import numpy as np

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Attention
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.written_attention import written_out

_INDICES, _NUMBERS = "aten::arange", "aten::where"
_VECTORS = 4
_PADDING = {"aten::index", "aten::gather"}
"""Ops that look up which tokens are padding."""
_MOST_OPS = 24
"""Most ops from the first index vector to the mask; there are 13 with a sliding window."""


def built_masks(base: Baseline) -> Rows:
    """Select the ops that build masks which fused attention does not need."""
    rows = np.zeros(len(base.ops), dtype=bool)
    sizes = {_bytes(attention.cost) for attention in written_out(base) if attention.cost}
    names = base.ops.name
    vectors = np.flatnonzero(names == _INDICES)
    for last in np.flatnonzero(names == _NUMBERS):
        before = vectors[vectors < last][-_VECTORS:]
        if len(before) == _VECTORS and _is_mask(base.ops[before[0] : last + 1], sizes):
            rows[before[0] : last + 1] = True
    return rows


def _is_mask(ops: OpList, sizes: set[int]) -> bool:
    """Return whether the ops lie in one module, look up no padding, and end by writing a whole number of such masks."""
    cost: Cost | None = ops.cost[-1]
    alone = len(ops) <= _MOST_OPS and len(set(ops.layer)) == 1 and _PADDING.isdisjoint(ops.name)
    return alone and cost is not None and any(cost.write_bytes % size == 0 for size in sizes)


def _bytes(cost: Cost) -> int:
    """Return the bytes of one sequence's mask."""
    assert isinstance(cost.work, Attention)
    return round(ELEMENT_BYTES[cost.precision] * cost.work.queries * cost.work.keys)
