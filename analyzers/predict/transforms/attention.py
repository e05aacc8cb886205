"""Unfused attention: its rows in an op list, and its cost as one op."""

import re
from collections.abc import Container

import msgspec
import numpy as np
from msgspec.structs import replace

from tracekit.analyzers.cost import BACKWARD, ELEMENT_BYTES, Attention, Cost, Product
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.by_cost import Rows

REACH = 8
"""Most ops between the softmax and each of its GEMMs (scale, mask, cast, dropout)."""
_SOFTMAXES = {"aten::_softmax": 1, "aten::_softmax_backward_data": 2}
"""Names of softmaxes -> the number of GEMMs on either side."""
_LINEAR = {"aten::mm", "aten::addmm", "aten::linear"}
_BATCHED = ("aten::bmm", "aten::baddbmm")
_COPIES = ("aten::copy_", "aten::clone")
_ROUTING = re.compile(r"topk|sort|index|gather|scatter|one_hot|nonzero|embedding")
"""Ops that choose by the scores: then the second GEMM multiplies something else than their softmax."""
_MASKING = ("aten::add", "aten::add_", "aten::where", "aten::masked_fill", "aten::masked_fill_")


class Written(msgspec.Struct, frozen=True):
    """One unfused attention, from the row of its first GEMM to that of its last."""

    first: int
    last: int
    cost: Cost | None
    """None: the trace records no shapes."""
    begin: int
    """The first of the copies before it, which repeat grouped heads or lay out the heads of several sequences as one
    batch. Fused attention reads queries, keys and values without these copies."""
    end: int
    """The last of the copies after it, which put the heads of a token side by side. Fused attention writes this
    layout."""
    products: tuple[int, ...] = ()
    """Its GEMMs, if the trace records no shapes."""


def written_out(base: Baseline) -> list[Written]:
    """Return every group of batched GEMM, softmax and batched GEMM of matching shapes; in the backward pass, with
    two GEMMs on either side. Without shapes, they are found by names."""
    costs, names = base.ops.cost.tolist(), base.ops.name.tolist()
    softmaxes = [i for i, cost in enumerate(costs) if cost and cost.family == "softmax"]
    forward = [_forward(costs, names, i) for i in softmaxes if "backward" not in names[i]]
    unmasked = {one.cost.work for one in forward if one and one.cost and not _is_causal(one.cost)}
    backward = [_backward(costs, names, i, unmasked) for i in softmaxes if "backward" in names[i]]
    unsized = [
        _written_by_names(costs, names, i) for i, name in enumerate(names) if name in _SOFTMAXES and costs[i] is None
    ]
    return [attention for attention in (*forward, *backward, *unsized) if attention]


def _written_by_names(costs: list[Cost | None], names: list[str], softmax: int) -> Written | None:
    """Return the attention of a softmax without a cost, from the nearest batched GEMMs before it to those after it."""
    near = range(max(softmax - REACH, 0), min(softmax + REACH, len(names)))
    products = [i for i in near if names[i] in _BATCHED and costs[i] is None]
    before, after = [i for i in products if i < softmax], [i for i in products if i > softmax]
    count = _SOFTMAXES[names[softmax]]
    if min(len(before), len(after)) < count:
        return None
    first, last = before[-count], after[count - 1]
    if not _LINEAR.isdisjoint(names[first:last]) or routes(names[first:last]):
        return None
    return Written(first, last, None, first, last, (*before[-count:], *after[:count]))


def covered(base: Baseline) -> Rows:
    """Select the rows of the op list that belong to unfused attention."""
    rows = np.zeros(len(base.ops), dtype=bool)
    for attention in written_out(base):
        rows[attention.begin : attention.end + 1] = True
    return rows


def _forward(costs: list[Cost | None], names: list[str], softmax: int) -> Written | None:
    before, after = _products_before(costs, softmax), _products_after(costs, softmax)
    if not before or not after:
        return None
    scores, values = costs[before[0]], costs[after[0]]
    assert scores and values and isinstance(scores.work, Product) and isinstance(values.work, Product)
    if (scores.work.m, scores.work.n) != (values.work.m, values.work.k) or routes(names[before[0] : after[0]]):
        return None
    masked = any(name in _MASKING for name in names[before[0] : softmax])
    cost = attention_cost(scores.work, scores, causal=masked and scores.work.m == scores.work.n)
    return Written(before[0], after[0], cost, *_with_copies(costs, names, before[0], after[0], scores))


def routes(names: list[str]) -> bool:
    """Return whether one of these ops chooses by the scores, as experts are chosen."""
    return any(map(_ROUTING.search, names))


def _is_causal(cost: Cost) -> bool:
    return isinstance(cost.work, Attention) and cost.work.causal


def _backward(costs: list[Cost | None], names: list[str], softmax: int, unmasked: Container[object]) -> Written | None:
    """Return the attention to which a softmax backward belongs: the gradients of scores and values come before it,
    those of queries and keys after it. Its softmax may be wider than its GEMMs, as under autocast. It is causal unless
    attention of this shape in the forward pass is `unmasked`."""
    before, after = _products_before(costs, softmax)[:2], _products_after(costs, softmax)[:2]
    for row in before:
        scores, grad = costs[row], costs[softmax]
        assert scores and grad and isinstance(scores.work, Product)
        elements = scores.work.groups * scores.work.m * scores.work.n
        if len(before) == len(after) == 2 and elements * ELEMENT_BYTES[grad.precision] == grad.write_bytes:
            cost = attention_cost(scores.work, scores, causal=False)
            if scores.work.m == scores.work.n and cost.work not in unmasked:
                cost = attention_cost(scores.work, scores, causal=True)
            first, last = before[1], after[1]
            return Written(first, last, _backward_cost(cost), *_with_copies(costs, names, first, last, scores))
    return None


def _with_copies(costs: list[Cost | None], names: list[str], first: int, last: int, scores: Cost) -> tuple[int, int]:
    """Return the first and the last row of the GEMMs and of the adjacent copies that move their inputs or
    outputs."""
    shape = scores.work
    assert isinstance(shape, Product)
    sizes = {ELEMENT_BYTES[scores.precision] * shape.groups * shape.k * length for length in (shape.m, shape.n)}

    def is_copy(row: int) -> bool:
        cost = costs[row] if 0 <= row < len(costs) else None
        return cost is not None and names[row] in _COPIES and cost.write_bytes in sizes

    while is_copy(first - 1):
        first -= 1
    while is_copy(last + 1):
        last += 1
    return first, last


def _products_before(costs: list[Cost | None], row: int) -> list[int]:
    """Return the batched GEMMs within reach, nearest first."""
    return [i for i in range(row - 1, max(row - REACH, -1), -1) if _batched(costs[i])]


def _products_after(costs: list[Cost | None], row: int) -> list[int]:
    return [i for i in range(row + 1, min(row + REACH, len(costs))) if _batched(costs[i])]


def _batched(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Product) and not cost.work.weight and cost.work.groups > 1


def attention_cost(scores: Product, cost: Cost, *, causal: bool) -> Cost:
    """Return the fused op with the scores of this GEMM: queries x keys, for each head of each sequence."""
    shape = Attention(1, scores.groups, scores.groups, scores.m, scores.n, scores.k, causal)
    element = ELEMENT_BYTES[cost.precision]
    return Cost(
        flops=4 * scores.groups * scores.m * scores.n * scores.k // (2 if causal else 1),
        read_bytes=round(element * scores.groups * scores.k * (scores.m + 2 * scores.n)),
        write_bytes=round(element * scores.groups * scores.m * scores.k),
        family="attention",
        precision=cost.precision,
        work=shape,
    )


def _backward_cost(forward: Cost) -> Cost:
    """Return the cost of the backward op. It reads the inputs and outputs of the forward op and the gradient of its
    output, and writes the gradients of queries, keys and values."""
    return replace(
        forward,
        flops=round(BACKWARD * forward.flops),
        read_bytes=forward.read_bytes + 2 * forward.write_bytes,
        write_bytes=forward.read_bytes,
    )


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
