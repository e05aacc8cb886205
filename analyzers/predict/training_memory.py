"""Estimates the memory of a training step in addition to weights, gradients and optimizer state, from its ops."""

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.cost import Attention, Cost
from tracekit.analyzers.predict.op_columns import Bools, OpList
from tracekit.analyzers.predict.saved_tensors import learned_layers, saved_bytes

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


_ONE = (
    *(
        "pow",
        "gelu",
        "silu",
        "mish",
        "hardswish",
        "softplus",
        "leaky_relu",
        "clamp",
        "relu",
        "relu_",
        "tanh",
        "sigmoid",
    ),
    *("exp", "sqrt", "rsqrt", "reciprocal", "elu", "_softmax", "_safe_softmax", "_log_softmax", "native_dropout"),
    *("where", "masked_fill", "masked_fill_", "embedding", "gather", "index", "index_select", "sin", "cos", "abs"),
)
_SAVED = {
    **dict.fromkeys(_ONE, 1),
    "_fused_rms_norm": 3,
    "native_layer_norm": 5,
    "native_group_norm": 4,
    "native_batch_norm": 6,
    "cudnn_batch_norm": 7,
    "bmm": 2,
    "mm": 2,
    "addmm": 2,
    "baddbmm": 2,
    "convolution": 2,
}
"""Number of saved tensors by op, from PyTorch's derivatives.yaml. Ops that are not listed (views, sums, copies) save
nothing."""
_ATTENTION = 7
"""Queries, keys, values, the result, its log-sum-exps, and the random generator's state (two tensors)."""


def saved_counts(ops: OpList) -> "pd.Series[int]":
    """Return the number of tensors that autograd saves for each row of an op list's forward pass.

    An element-wise product of two tensors saves each factor whose partner needs a gradient. It saves both if they have
    equal sizes or one is a weight, else the smaller one (a mask, a rotation), and none if one factor is a number. Rows
    of other phases, and rows without a cost, are left out.
    """
    forward = ops[(ops.phase == "forward") & ops.costed]
    learned = learned_layers(ops)
    rows = zip(forward.name, forward.cost, forward.layer, strict=True)
    counts = [_saved(name.removeprefix("aten::"), cost, layer in learned) for name, cost, layer in rows]
    return pd.Series(counts, forward.index, dtype="int64")


def _saved(name: str, cost: Cost, learned: bool) -> int:
    if isinstance(cost.work, Attention):
        return _ATTENTION
    if name in ("mul", "div"):
        return _of_factors(cost, learned)
    return _SAVED.get(name, 2 if cost.family in ("gemm", "convolution") else 0)


def _of_factors(cost: Cost, learned: bool) -> int:
    if learned or cost.read_bytes >= 2 * cost.write_bytes:
        return 2
    return int(cost.read_bytes > cost.write_bytes)
