"""Detectors of products in an order that computes more: a large product between two small ones, rows that are averaged
after they are multiplied."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.repeats import product_of, size_of, tensors_in
from tracekit.analyzers.core import Floats
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, which

Products = Sequence[Product | None]
"""The product of each op; None for others."""
_SOON = 4
"""Ops within which a product reads what was made for it."""
_LESS = 2
"""Times the operations of another order from which the order matters."""
_SCALES = ("aten::mul", "aten::mul_", "aten::div", "aten::div_")
_BATCHED, _MULTIPLY = ("aten::bmm", "aten::baddbmm"), ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_BEFORE = 6
"""Ops before a product that make its operands."""
_READS = ("aten::copy_", "aten::_to_copy", "aten::sum")


def products_of(ops: OpList) -> Products:
    works = map(product_of, ops.cost)
    return [work if work is None or not work.routed else None for work in works]


def products_out_of_order(base: Baseline) -> Finding | None:
    """Find products of a product, as (q kᵀ) v without a softmax, that take half as many operations in another order."""
    ops, works, backward = base.ops, products_of(base.ops), in_phase(base.ops, "backward")
    factor = np.ones(len(ops))
    for place, one in enumerate(works):
        next_one = 0 if one is None or backward[place] else _next_product(base, works, place, one)
        other = works[next_one]
        if next_one and one and other and (part := _part_in_other_order(one, other)) * _LESS <= 1:
            factor[place : next_one + 1] = part
    factor = _with_gradients(factor, works, backward) if any(works) else _parts_by_time(ops, backward)
    times = int((which(ops.name, _MULTIPLY.__contains__) & (factor < 1)).sum())
    return by_factors(factor, times, "products-out-of-order") if times else None


def _parts_by_time(ops: OpList, backward: Rows) -> Floats:
    """Return the part of the time of each op that remains in another order, without shapes: of two batched products
    between which the first result is only read, in far more time than what makes the operands takes. An op that reads
    it moves its size once; one that makes an operand, twice. Gradients are as many products as long."""
    factor, batched_ = np.ones(len(ops)), which(ops.name, _BATCHED.__contains__)
    small = np.where(batched_ | which(ops.name, _MULTIPLY.__contains__), 0.0, ops.kernel_ns)
    for one, other in pairwise(np.flatnonzero(batched_ & ~backward).tolist()):
        read, made = small[one + 1 : other], small[max(one - _BEFORE, 0) : one]
        reads = set(ops.name[one + 1 : other]) <= set(_READS) and 0 < len(read) < _SOON and made.any()
        part = made.max() / (2 * read.max()) if reads else 1.0
        if part * 2 * _LESS <= 1:
            factor[one : other + 1] = part
            large = np.flatnonzero(batched_ & backward & (2 * ops.kernel_ns > ops.kernel_ns[one]))
            for begin, end in pairwise(large.tolist()):
                factor[begin : end + 1] = part if end - begin <= _SOON else factor[begin : end + 1]
    return factor


def _with_gradients(factor: Floats, works: Products, backward: Rows) -> Floats:
    """Return the part of the time of each op that remains, in which gradients follow from their products, which are
    known by their sizes: of those alike, the backward pass begins with the last."""
    sides, factor = [sides_of(work) for work in works], factor.copy()
    for one in {each for each, part in zip(sides, factor.tolist(), strict=True) if each and part < 1}:
        alike = np.array([each == one for each in sides])
        forward, back = np.flatnonzero(alike & ~backward), np.flatnonzero(alike & backward)
        factor[back] = factor[forward[::-1]][np.arange(len(back)) * len(forward) // max(len(back), 1)]
    return factor


def by_factors(factor: Floats, times: int, way: str) -> Finding:
    def change(run: Baseline, _: Outcome) -> OpList:
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * factor)

    return Finding(factor < 1, change, times, way=way)


def sides_of(work: Product | None) -> tuple[int, ...]:
    """Return the sizes of a product, which those of its gradients are in another order."""
    return (work.groups, *sorted((work.m, work.n, work.k))) if work else ()


def _next_product(base: Baseline, works: Products, place: int, one: Product) -> int:
    """Return the place of the next product, if only ops that scale, copy or add up the result of this one come between;
    0 if there is none. Layers keep their weights apart, and an activation may be part of a product's op."""
    ops, size = base.ops, one.groups * one.m * one.n
    if ops.name[place] == "aten::_addmm_activation":
        return 0
    for later in range(place + 1, min(place + 1 + _SOON, len(ops))):
        if works[later] is not None:
            return 0 if ops.call[place] == ops.call[later] == "aten::linear" else later
        given = [math.prod(shape) for _, shape in tensors_in(base, later, later + 1)]
        scales = ops.name[later] in _SCALES and given == [size]
        if not scales and not (ops.name[later] in _READS and given[:1] == [size]):
            return 0
    return 0


def _part_in_other_order(one: Product, other: Product) -> float:
    """Return the operations of another order relative to those of this one, where the second product reads what the
    first one writes; 1: it does not. A square result may be either operand, so that the most of the orders counts."""
    now = one.m * one.n * one.k + other.m * other.n * other.k
    orders = _other_orders(one, other) if one.groups == other.groups else ()
    return max((then / now for then in orders), default=1.0)


def _other_orders(one: Product, other: Product) -> Iterator[int]:
    """Yield the operations of each other order for the operand, transposed or not, that the first result may be."""
    if (other.m, other.k) == (one.m, one.n):
        yield one.k * one.n * other.n + one.m * one.k * other.n
    if (other.m, other.k) == (one.n, one.m):
        yield one.k * one.m * other.n + one.n * one.k * other.n
    if (other.k, other.n) == (one.m, one.n):
        yield other.m * one.m * one.k + other.m * one.k * one.n
    if (other.k, other.n) == (one.n, one.m):
        yield other.m * one.n * one.k + other.m * one.k * one.m


_POOLED = 4
"""Rows for each one that remains after a mean or sum from which its order matters."""


def pooled_late(base: Baseline) -> Finding | None:
    """Find products of all rows whose result is averaged or summed over rows at once: both are linear and commute."""
    ops, works, backward = base.ops, products_of(base.ops), in_phase(base.ops, "backward")
    factor, times = np.ones(len(ops)), 0
    for place, work in enumerate(works[:-1]):
        rows = 0 if work is None or backward[place] else _pooled_rows(base, place + 1, work)
        if work and rows and rows * _POOLED <= work.m:
            factor[[place, place + 1]], times = (rows / work.m, min(1.0, work.k / work.n)), times + 1
    return by_factors(_with_gradients(factor, works, backward), times, "pooled-late") if times else None


def _pooled_rows(base: Baseline, place: int, work: Product) -> int:
    """Return how many rows of a product's result a mean or sum leaves; 0: it is none, or one over columns."""
    cost, given = base.ops.cost[place], tensors_in(base, place, place + 1)[:1]
    if cost is None or base.ops.name[place] not in ("aten::mean", "aten::sum") or not given or work.groups > 1:
        return 0
    left = cost.write_bytes // size_of(given[0][0], (1,))
    whole = given[0][1][-1] == work.n and math.prod(given[0][1]) == work.m * work.n
    return left // work.n if whole and left % work.n == 0 and left != work.m else 0
