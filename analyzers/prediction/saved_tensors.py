"""What autograd keeps of a forward pass for the backward pass, told from the op list.

A trace has no identities of tensors: that an op keeps what another one keeps already is told from sizes and order.
"""

from collections.abc import Callable

import pandas as pd

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Attention, Product

Keeps = Callable[[Cost], int]

_LARGER = 1.6
"""Less than this times its result is written: a norm adds statistics, a dropout in 16 bits a mask of half the size."""


def _result(cost: Cost) -> int:
    return cost.write_bytes


def _input(cost: Cost) -> int:
    """As large as the result; statistics that a norm writes are kept as well."""
    return cost.write_bytes


def _mask(cost: Cost) -> int:
    return max(0, cost.write_bytes - cost.read_bytes)


def _both(cost: Cost) -> int:
    """Of two tensors as large as the result. One and a number keep nothing, one and a smaller one: `_Pass._scaled`."""
    return cost.read_bytes if cost.read_bytes >= 2 * cost.write_bytes else 0


_ACTIVATIONS = ("pow", "gelu", "silu", "mish", "hardswish", "softplus", "leaky_relu", "clamp")
_NORMS = ("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm")
_OF_RESULT = ("relu", "relu_", "tanh", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal", "elu")
_SOFTMAXES = ("_softmax", "_safe_softmax", "_log_softmax")
_KEEPS: dict[str, Keeps] = {
    **dict.fromkeys((*_ACTIVATIONS, *_NORMS), _input),
    **dict.fromkeys((*_OF_RESULT, *_SOFTMAXES), _result),
    "native_dropout": _mask,
    "mul": _both,
    "div": _both,
}
"""By op. Matrix products keep their inputs, attention its inputs and its result. What is in neither (views, sums,
copies, gathers) keeps nothing that grows with the batch."""


def saved_bytes(ops: pd.DataFrame) -> "pd.Series[int]":
    """Per row of the forward pass of an op list, the bytes that are kept from then on; no other row is in it."""
    forward = ops[(ops.phase == "forward") & ops.cost.notna()]
    walk = _Pass(learned_layers(ops))
    rows = zip(forward.name, forward.layer, forward.cost, strict=True)
    return pd.Series(
        [walk.kept(name.removeprefix("aten::"), *row) for name, *row in rows], forward.index, dtype="int64"
    )


def learned_layers(ops: pd.DataFrame) -> set[str]:
    """Layers whose products of tensors, element by element, have gradients of both factors: two products each."""
    multiplies = ops.name == "aten::mul"
    forward, backward = (
        ops.layer[multiplies & (ops.phase == phase)].value_counts() for phase in ("forward", "backward")
    )
    return set(forward.index[backward.reindex(forward.index, fill_value=0) > forward])


class _Pass:
    """A forward pass, op after op. `learned`: layers in which both factors need a gradient."""

    def __init__(self, learned: set[str]) -> None:
        self._learned = learned
        self._last_result = 0
        """Bytes of the result of the op before, if that is kept."""
        self._multiplied: set[int] = set()
        """Bytes of inputs of products, kept, since when nothing else of that size was written."""
        self._squared: set[tuple[str, int]] = set()
        """Layers, and bytes of what they took the squares of and have not used again."""

    def kept(self, name: str, layer: str, cost: Cost) -> int:
        if cost.family in ("gemm", "convolution"):
            kept = self._product(cost)
        else:
            kept = self._elsewhere(name, layer, cost)
            self._multiplied -= {size for size in self._multiplied if size <= cost.write_bytes < _LARGER * size}
        self._last_result = _kept_result(name, cost)
        return kept

    def _product(self, cost: Cost) -> int:
        """Its inputs, weights apart, unless another product or the op before keeps them."""
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
        """A tensor times a smaller one, if that needs a gradient; a norm that took its squares keeps it already."""
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
    """Queries, keys, values, and what it writes: its result, and the logarithm of the sum that divided each row."""
    return _rows(cost, shape, shape.heads * shape.queries + 2 * shape.kv_heads * shape.keys) + cost.write_bytes


def _rows(cost: Cost, shape: Attention, rows: int) -> int:
    """Bytes of so many rows of heads a sequence."""
    return round(ELEMENT_BYTES[cost.precision] * shape.batch * rows * shape.head_dim)


def _multiplied(cost: Cost) -> list[int]:
    """Bytes of each input of a product that is no weight."""
    shape, element = cost.work, ELEMENT_BYTES[cost.precision]
    if not isinstance(shape, Product):
        return [cost.read_bytes - cost.weight_bytes]
    left, right = (round(shape.groups * shape.k * side * element) for side in (shape.m, shape.n))
    return [left] if shape.weight else [left, right]
