"""What a training step holds at its moments, as its ops tell it."""

from dataclasses import dataclass

import pandas as pd

from tracekit.analyzers.prediction.saved_tensors import saved_bytes

LOGITS_AT_LOSS = 2
"""Tensors as large as the log-probabilities when a cross entropy is differentiated: the gradient that its second half
makes (zeros, and one value a row), and that of the softmax."""
TIED_AT_END = 2
"""Tensors as large as a table that is used twice, beside its gradient: what both uses gave, before they are added."""


@dataclass(frozen=True)
class Moments:
    """Bytes beside weights, gradients and what the optimizer keeps."""

    saved: int
    """What is kept for the backward pass, at the end of the forward pass. 0: not known."""
    loss: int
    """What the first ops of the backward pass make and drop while all that is there."""
    tied_gradients: int
    """What the end of the backward pass makes and drops."""
    temporaries: int
    """What the optimizer makes and drops."""


def moments(ops: pd.DataFrame) -> Moments:
    """The moments of a step, from its op list."""
    return Moments(int(saved_bytes(ops).sum()), _loss(ops), _tied_gradients(ops), _temporaries(ops))


def _loss(ops: pd.DataFrame) -> int:
    """Of a few classes, as of images, the gradient that the last block's widest product hands back is larger."""
    logits = LOGITS_AT_LOSS * _largest_output(ops, ops.name == "aten::_log_softmax_backward_data")
    weights = {cost.weight_bytes for cost in ops.cost[ops.phase == "forward"] if cost is not None} - {0}
    products = [cost for cost in ops.cost[ops.phase == "backward"] if cost is not None and cost.family == "gemm"]
    handed_back = [
        cost.write_bytes for cost in products if cost.weight_bytes in weights and cost.write_bytes not in weights
    ]
    return max([logits, *handed_back])


def _tied_gradients(ops: pd.DataFrame) -> int:
    """The gradients of a table of embeddings that is multiplied by, too, are added out of place."""
    tables = ops.layer[ops.name == "aten::embedding_dense_backward"]
    added = (ops.phase == "backward") & (ops.name == "aten::add") & ops.layer.isin(tables)
    return TIED_AT_END * _largest_output(ops, added)


def _temporaries(ops: pd.DataFrame) -> int:
    """Ops on lists of parameters that are not in place make as much anew."""
    new = ops.name.str.startswith("aten::_foreach_") & ~ops.name.str.endswith("_")
    return _largest_output(ops, new)


def _largest_output(ops: pd.DataFrame, rows: "pd.Series[bool]") -> int:
    return max((cost.write_bytes for cost in ops.cost[rows] if cost is not None), default=0)
