"""Parts of a model that always compute in fp32, between casts of their inputs and outputs.

They are norms written op by op (LlamaRMSNorm, T5LayerNorm), and attention on PyTorch's math backend.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import each, where
from tracekit.analyzers.transforms.extra_kernels import Extra, with_extras
from tracekit.analyzers.transforms.linear_products import linear_product
from tracekit.analyzers.transforms.retime import put
from tracekit.analyzers.transforms.written_attention import written_out

WIDE = ("fp32", "tf32")
_QUERIES_KEYS_VALUES = 3

Span = tuple[int, int]
"""First and last row in the op list, by position."""


def with_wide_parts(base: Baseline, half: OpList) -> OpList:
    """Return `half`, the base's op list in 16 bits, with these parts in fp32 and with casts around them.

    If the base is in 16 bits already, its op list contains these casts.
    """
    if not where(base.ops, _multiplies_wide_weights).any():
        return half
    norms, attentions = _norms(base), _math_attentions(base)
    costs = base.ops.cost
    kept = [row for first, last in [*norms, *attentions] for row in range(first, last + 1)]
    ops = put(half, base.ops[np.array(kept, dtype=np.intp)])
    before = {first: [_cast(costs[first])] for first, _ in norms}
    before |= {first: [_cast(costs[first])] * _QUERIES_KEYS_VALUES for first, _ in attentions}
    after = {last: [_cast(costs[last])] for _, last in norms}
    after |= {last: [_cast(costs[first]), _cast(costs[last])] for first, last in attentions}
    around = [extra for extras in (*before.values(), *after.values()) for extra in extras]
    return _with_idle_casts(replace(base, ops=with_extras(replace(base, ops=ops), before, after)), around)


def _multiplies_wide_weights(cost: Cost | None) -> bool:
    return cost is not None and cost.precision in WIDE and linear_product(cost) is not None


def _norms(base: Baseline) -> list[Span]:
    """Return the norms that begin with the squares of their input."""
    inside = np.flatnonzero(each(lambda kind: kind.endswith("Norm"), base.ops.layer_type, dtype=bool))
    starts = np.flatnonzero(base.ops.name[inside] == "aten::pow")
    lasts = np.append(starts, len(inside))[1:] - 1
    return list(zip(inside[starts].tolist(), inside[lasts].tolist(), strict=True))


def _math_attentions(base: Baseline) -> list[Span]:
    """Return the attentions whose softmax checks for fully masked rows, as only that of the math backend does."""
    spans = [(each.first, each.last) for each in written_out(base)]
    return [span for span in spans if (base.ops.name[span[0] : span[1]] == "aten::isneginf").any()]


def _with_idle_casts(base: Baseline, added: list[Extra]) -> OpList:
    """Return the op list with the casts that did nothing in fp32, except those that are `added` already.

    Their places in the step are not known, so they are spread evenly.
    """
    left = Counter(base.idle_casts)
    left.subtract(extra.cost.write_bytes // 2 for extra in added)
    casts = [_cast_of(elements) for elements in left.elements()]
    rows = np.linspace(0, len(base.ops) - 1, len(casts), dtype=int).tolist()
    after: dict[int, list[Extra]] = {}
    for row, cast in zip(rows, casts, strict=True):
        after.setdefault(row, []).append(cast)
    return with_extras(base, {}, after)


def _cast(cost: Cost | None) -> Extra:
    """Return a cast of the output of an fp32 op."""
    return _cast_of(cost.write_bytes // 4 if cost else 0)


def _cast_of(elements: int) -> Extra:
    return Extra("aten::_to_copy", Cost(0, 4 * elements, 2 * elements, "copy", "fp32"))
