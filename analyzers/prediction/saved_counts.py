"""Counts the tensors that autograd saves for the ops of a forward pass. Each costs Python time in hooks on saved
tensors."""

import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.saved_tensors import learned_layers

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
