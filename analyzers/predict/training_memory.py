"""Estimates the memory of a training step in addition to weights, gradients and optimizer state, from its ops.

The bytes that autograd saves in a forward pass for the backward pass are estimated, too. A trace does not identify
tensors: sizes and order show whether an op's tensor is already saved by another op.
"""

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.core import facts
from tracekit.analyzers.cost import ELEMENT_BYTES, Attention, Cost, Product
from tracekit.analyzers.predict.op_columns import Bools, OpList

Keeps = Callable[[Cost], int]

_LARGER = 1.6
"""An op that writes less than this factor times a tensor's bytes may have written a tensor of that size: a norm adds
statistics, a dropout in 16 bits adds a mask of half the size."""


def _result(cost: Cost) -> int:
    return cost.write_bytes


def _input(cost: Cost) -> int:
    """Return the bytes of the op's input, which is as large as the result, and of the statistics that a norm saves."""
    return cost.write_bytes


def _mask(cost: Cost) -> int:
    return max(0, cost.write_bytes - cost.read_bytes)


def _both(cost: Cost) -> int:
    """Return the bytes of two tensors as large as the result. A factor that is a number saves nothing; `_Pass._scaled`
    handles smaller factors."""
    return cost.read_bytes if cost.read_bytes >= 2 * cost.write_bytes else 0


_ACTIVATIONS = ("pow", "gelu", "silu", "mish", "hardswish", "softplus", "leaky_relu", "clamp")
_NORMS = ("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm")
_OF_RESULT = ("relu", "relu_", "tanh", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal", "elu")
_SOFTMAX_GRADIENT = "aten::_softmax_backward_data"
_SOFTMAXES = ("_softmax", "_safe_softmax", "_log_softmax")
_KEEPS: dict[str, Keeps] = {
    **dict.fromkeys((*_ACTIVATIONS, *_NORMS), _input),
    **dict.fromkeys((*_OF_RESULT, *_SOFTMAXES), _result),
    "native_dropout": _mask,
    "mul": _both,
    "div": _both,
}
"""Op -> function that gives its saved bytes. GEMMs save their inputs, attention its inputs and its result.
Ops that are not listed (views, sums, copies, gathers) save nothing that grows with the batch."""


def saved_bytes(ops: OpList) -> "pd.Series[int]":
    """Return the saved bytes of each row with a cost in an op list's forward pass."""
    forward = ops[(ops.phase == "forward") & ops.costed]
    walk = _Pass(learned_layers(ops))
    rows = zip(forward.name, forward.layer, forward.cost, strict=True)
    return pd.Series(
        [walk.kept(name.removeprefix("aten::"), *row) for name, *row in rows], forward.index, dtype="int64"
    )


def learned_layers(ops: OpList) -> set[str]:
    """Return the layers whose element-wise products of tensors have gradients of both factors: two products each.

    The gradient of a softmax begins with a separate product.
    """
    forward, backward, softmaxes = (
        Counter(ops.layer[(ops.name == name) & (ops.phase == phase)])
        for name, phase in (("aten::mul", "forward"), ("aten::mul", "backward"), (_SOFTMAX_GRADIENT, "backward"))
    )
    return {layer for layer, count in forward.items() if backward[layer] - softmaxes[layer] > count}


class _Pass:
    """A forward pass, processed op by op. `learned` holds the layers in which both factors need a gradient."""

    def __init__(self, learned: set[str]) -> None:
        self._learned = learned
        self._last_result = 0
        """Bytes of the previous op's result if it is saved, else 0."""
        self._multiplied: set[int] = set()
        """Bytes of saved inputs of GEMMs that no later op of the same size has overwritten."""
        self._squared: set[tuple[str, int]] = set()
        """Layer and bytes of each tensor that was squared and not used since."""

    def kept(self, name: str, layer: str, cost: Cost) -> int:
        if cost.family in ("gemm", "convolution"):
            kept = self._product(cost)
        else:
            kept = self._elsewhere(name, layer, cost)
            self._multiplied -= {size for size in self._multiplied if size <= cost.write_bytes < _LARGER * size}
        self._last_result = _kept_result(name, cost)
        return kept

    def _product(self, cost: Cost) -> int:
        """Return the bytes of inputs other than weights that neither another GEMM nor the previous op saves."""
        kept = 0
        for size in _multiplied(cost):
            shared = size == self._last_result or (cost.weight_bytes and size in self._multiplied)
            kept += 0 if shared else size
            self._multiplied.add(size)
        return kept

    def _elsewhere(self, name: str, layer: str, cost: Cost) -> int:
        if isinstance(cost.work, Attention):
            return _attended(cost, cost.work)
        if name == "pow":
            self._squared.add((layer, cost.write_bytes))
        keeps = _KEEPS.get(name)
        if keeps is _both and cost.write_bytes != cost.read_bytes < 2 * cost.write_bytes:
            return self._scaled(layer, cost)
        shared = keeps is _both and self._last_result == cost.write_bytes
        return max(0, keeps(cost) - shared * cost.write_bytes) if keeps else 0

    def _scaled(self, layer: str, cost: Cost) -> int:
        """Return the bytes of a tensor that is multiplied with a smaller one, if that needs a gradient. A norm that
        squared the tensor has saved it already."""
        if layer not in self._learned:
            return 0
        size = min(cost.read_bytes, cost.write_bytes)
        if (layer, size) in self._squared:
            self._squared.remove((layer, size))
            return 0
        return size


def _kept_result(name: str, cost: Cost) -> int:
    if isinstance(cost.work, Attention):
        return _rows(cost, cost.work, cost.work.heads * cost.work.queries)
    return cost.write_bytes if _KEEPS.get(name) is _result else 0


def _attended(cost: Cost, shape: Attention) -> int:
    """Return the bytes of queries, keys, values, the result, and the log-sum-exp of each row."""
    return _rows(cost, shape, shape.heads * shape.queries + 2 * shape.kv_heads * shape.keys) + cost.write_bytes


def _rows(cost: Cost, shape: Attention, rows: int) -> int:
    """Return the bytes of `rows` rows of each head and sequence."""
    return round(ELEMENT_BYTES[cost.precision] * shape.batch * rows * shape.head_dim)


def _multiplied(cost: Cost) -> list[int]:
    """Return the bytes of each input of a GEMM that is not a weight."""
    shape, element = cost.work, ELEMENT_BYTES[cost.precision]
    if not isinstance(shape, Product):
        return [cost.read_bytes - cost.weight_bytes]
    left, right = (round(shape.groups * shape.k * side * element) for side in (shape.m, shape.n))
    return [left] if shape.weight else [left, right]


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


_FACTS = facts(__file__)
_SAVED: dict[str, int] = {**dict.fromkeys(_FACTS["one"], 1), **_FACTS["several"]}
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
        return _count_factors(cost, learned)
    return _SAVED.get(name, 2 if cost.family in ("gemm", "convolution") else 0)


def _count_factors(cost: Cost, learned: bool) -> int:
    if learned or cost.read_bytes >= 2 * cost.write_bytes:
        return 2
    return int(cost.read_bytes > cost.write_bytes)
