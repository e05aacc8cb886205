"""Parts of a model that always compute in fp32, between casts of their inputs and outputs.

They are norms written op by op (LlamaRMSNorm, T5LayerNorm), and attention on PyTorch's math backend.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost, Family, Precision, estimate_ns
from tracekit.analyzers.predict.op_columns import OpList, coded, joined
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.attention import written_out
from tracekit.analyzers.predict.transforms.by_cost import each, plain_launch_ns, put, where
from tracekit.analyzers.predict.transforms.products import linear_product

_KNOWN = outcomes(__file__)
PYTHON_OP = _KNOWN["python_op"]
"""Host time to enter an op that is written in Python (a custom op, an autograd function), in plain launches."""
SUBCLASS = _KNOWN["subclass"]
"""Host time that eager code adds to a layer whose weight is a tensor subclass (torchao) with dispatch in Python, in
plain launches."""
TORCHAO = "torchao::"
"""Prefix of the names of ops that torchao's Python code launches in eager mode."""
WIDENING = TORCHAO + "widen"
"""The kernel that widens int8 weights. If torch.compile generated it, it writes against their memory order (see
`compile`)."""


class Extra(msgspec.Struct, frozen=True):
    """An added kernel. `host` is its host time in plain launches; with `sync` the host then waits for it."""

    name: str
    cost: Cost
    host: float = 1.0
    sync: bool = False
    error: float = 1.0
    """Real kernel time relative to the modelled one."""


def moving(read_bytes: float, write_bytes: float, precision: Precision = "fp16", family: Family = "pointwise") -> Cost:
    """Return the cost of a kernel that reads and writes these bytes and computes almost nothing."""
    return Cost(0, round(read_bytes), round(write_bytes), family, precision)


def with_extras(
    base: Baseline,
    before: Mapping[int, Sequence[Extra]],
    after: Mapping[int, Sequence[Extra]],
    gone: Collection[int] = (),
) -> OpList:
    """Insert kernels before and after rows of the base's op list (by position), in the layers of these rows, and remove
    the rows in `gone`."""
    if not any((*before.values(), *after.values())):
        return base.ops
    rows = np.fromiter(chain(before, after), dtype=np.intp)
    places = rows + np.repeat((-0.5, 0.5), (len(before), len(after)))
    counts = [len(some) for some in chain(before.values(), after.values())]
    extras = list(chain.from_iterable(chain(before.values(), after.values())))
    new = _listed(base, np.repeat(rows, counts), extras)
    order = np.argsort(np.append(np.arange(len(base.ops)), np.repeat(places, counts)), kind="stable")
    order = order[~np.isin(order, list(gone))]
    return joined(base.ops, new)[order].renumbered()


def _listed(base: Baseline, rows: npt.NDArray[np.intp], extras: list[Extra]) -> OpList:
    """Return the op list of extra kernels in the layers of these rows."""
    unit = plain_launch_ns(base)
    codes, distinct = coded(np.array(extras, dtype=object))
    values = {
        "name": np.array([extra.name for extra in distinct], dtype=object),
        "call": np.array([extra.name for extra in distinct], dtype=object),
        "category": np.full(len(distinct), "kernel", dtype=object),
        "host_ns": np.array([extra.host * unit for extra in distinct]),
        "kernel_ns": np.array([extra.error * estimate_ns(extra.cost, base.gpu) for extra in distinct]),
        "launches": np.ones(len(distinct), dtype=np.int64),
        "sync": np.array([extra.sync for extra in distinct]),
        "cost": np.array([extra.cost for extra in distinct], dtype=object),
        "message": np.full(len(distinct), None, dtype=object),
    }
    return base.ops[rows].assign(**{name: column[codes] for name, column in values.items()})


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
