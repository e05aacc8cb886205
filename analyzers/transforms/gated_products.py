"""Reorders gated activations: generated code multiplies by the gate in the kernel of the activation, after the gate's
GEMM."""

import numpy as np

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import where


def gates_first(ops: OpList) -> OpList:
    """Return the op list with each activation after the GEMM that follows it, as in `silu(gate(x)) * up(x)`.

    The GEMM does not read the activation if its input has another size, and the op after it multiplies both.
    """
    costs, order = ops.cost.tolist(), np.arange(len(ops))
    for row in np.flatnonzero(where(ops, _is_unary)[:-2]):
        if _is_apart(costs[row], costs[row + 1]) and _multiplies(costs[row], costs[row + 2]):
            order[[row, row + 1]] = order[[row + 1, row]]
    return ops[order]


def _is_unary(cost: Cost | None) -> bool:
    return cost is not None and cost.family == "pointwise" and cost.read_bytes == cost.write_bytes


def _is_apart(activation: Cost, product: Cost | None) -> bool:
    """Return whether the GEMM has a result of the activation's size and an input of another size."""
    if product is None or not isinstance(product.work, Product):
        return False
    shape, elements = product.work, activation.write_bytes / ELEMENT_BYTES[activation.precision]
    return shape.groups * shape.m * shape.n == elements != shape.groups * shape.m * shape.k


def _multiplies(activation: Cost, after: Cost | None) -> bool:
    both = 2 * activation.write_bytes
    return (
        after is not None and after.family == "pointwise" and (after.read_bytes, after.write_bytes) == (both, both // 2)
    )
