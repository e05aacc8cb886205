"""Estimates the memory of a training step in addition to weights, gradients and optimizer state, from its ops."""

import msgspec
import numpy as np

from tracekit.analyzers.prediction.op_columns import Bools, OpList
from tracekit.analyzers.prediction.saved_tensors import saved_bytes

LOGITS_AT_LOSS = 2
"""Number of tensors as large as the log-probabilities while a cross entropy is differentiated: the gradient of its
second half (zeros, and one value per row), and that of the softmax."""
TIED_AT_END = 2
"""Number of tensors as large as a table that is used twice, in addition to its gradient: the gradients of both uses,
before they are added."""


class TrainingMemory(msgspec.Struct, frozen=True):
    """Bytes in addition to weights, gradients and the optimizer's state, at the points where a step may peak."""

    saved: int
    """Tensors kept for the backward pass, at the end of the forward pass; 0 if unknown."""
    loss: int
    """Temporary tensors of the first ops of the backward pass, in addition to `saved`."""
    tied_gradients: int
    """Temporary tensors at the end of the backward pass."""
    temporaries: int
    """Temporary tensors of the optimizer."""


def training_memory(ops: OpList) -> TrainingMemory:
    """Return the memory of a training step, from its op list."""
    return TrainingMemory(int(saved_bytes(ops).sum()), _loss(ops), _tied_gradients(ops), _temporaries(ops))


def _loss(ops: OpList) -> int:
    """Return the bytes of temporary tensors at the loss.

    With few classes, as for images, the last block's input gradient exceeds the logits' gradient.
    """
    logits = LOGITS_AT_LOSS * _largest_output(ops, ops.name == "aten::_log_softmax_backward_data")
    weights = {cost.weight_bytes for cost in ops.cost[ops.phase == "forward"] if cost is not None} - {0}
    products = [cost for cost in ops.cost[ops.phase == "backward"] if cost is not None and cost.family == "gemm"]
    handed_back = [
        cost.write_bytes for cost in products if cost.weight_bytes in weights and cost.write_bytes not in weights
    ]
    return max([logits, *handed_back])


def _tied_gradients(ops: OpList) -> int:
    """Return the bytes of the gradients of an embedding table that is also a head, which are added out of place."""
    tables = ops.layer[ops.name == "aten::embedding_dense_backward"]
    added = (ops.phase == "backward") & (ops.name == "aten::add") & np.isin(ops.layer, tables)
    return TIED_AT_END * _largest_output(ops, added)


def _temporaries(ops: OpList) -> int:
    """Return the bytes that ops on lists of parameters allocate if they are not in place."""
    rows = [name.startswith("aten::_foreach_") and not name.endswith("_") for name in ops.name]
    return _largest_output(ops, np.array(rows, dtype=bool))


def _largest_output(ops: OpList, rows: Bools) -> int:
    return max((cost.write_bytes for cost in ops.cost[rows] if cost is not None), default=0)
