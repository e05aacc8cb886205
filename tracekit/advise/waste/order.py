"""Detectors of products in an order that computes more: a large product between two small ones, rows that are repeated
before they are multiplied."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.repeats import size_of, tensors_in
from tracekit.analyzers.core import Floats
from tracekit.analyzers.cost import ELEMENT_BYTES, Product
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


def _products(ops: OpList) -> Products:
    works = [cost.work if cost is not None else None for cost in ops.cost]
    return [work if isinstance(work, Product) and not work.routed else None for work in works]


def products_out_of_order(base: Baseline) -> Finding | None:
    """Find products of a product, as (q kᵀ) v without a softmax, that take half as many operations in another order."""
    ops, works, backward = base.ops, _products(base.ops), in_phase(base.ops, "backward")
    factor, parts = np.ones(len(ops)), dict[tuple[int, ...], float]()
    for place, one in enumerate(works):
        next_one = 0 if one is None or backward[place] else _next_product(base, works, place, one)
        other = works[next_one]
        if next_one and one and other and (part := _part_in_other_order(one, other)) * _LESS <= 1:
            factor[place : next_one + 1] = part
            parts |= dict.fromkeys((_sides(one), _sides(other)), part)
    multiplies = np.array([work is not None for work in works], dtype=bool)
    factor = _with_gradients(factor, works, backward & multiplies, parts)
    factor = factor if multiplies.any() else _parts_by_time(ops, backward)
    times = int((which(ops.name, _MULTIPLY.__contains__) & (factor < 1)).sum())
    return _by(factor, times, "products-out-of-order") if times else None


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


def _with_gradients(factor: Floats, works: Products, rows: Rows, parts: Mapping[tuple[int, ...], float]) -> Floats:
    """Return the part of the time of each op that remains, in which that of gradients, the rows, is known by the sizes
    of their products."""
    return np.where(rows, [parts.get(_sides(work), 1.0) for work in works], factor)


def _by(factor: Floats, times: int, way: str) -> Finding:
    def change(run: Baseline, _: Outcome) -> OpList:
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * factor)

    return Finding(factor < 1, change, times, way=way)


def _sides(work: Product | None) -> tuple[int, ...]:
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
    ops, works, backward = base.ops, _products(base.ops), in_phase(base.ops, "backward")
    factor, parts, times = np.ones(len(ops)), dict[tuple[int, ...], float](), 0
    for place, work in enumerate(works[:-1]):
        rows = 0 if work is None or backward[place] else _pooled_rows(base, place + 1, work)
        if work and rows and rows * _POOLED <= work.m:
            factor[[place, place + 1]], times = (rows / work.m, min(1.0, work.k / work.n)), times + 1
            parts[_sides(work)] = rows / work.m
    return _by(_with_gradients(factor, works, backward, parts), times, "pooled-late") if times else None


def _pooled_rows(base: Baseline, place: int, work: Product) -> int:
    """Return how many rows of a product's result a mean or sum leaves; 0: it is none, or one over columns."""
    cost, given = base.ops.cost[place], tensors_in(base, place, place + 1)[:1]
    if cost is None or base.ops.name[place] not in ("aten::mean", "aten::sum") or not given or work.groups > 1:
        return 0
    left = cost.write_bytes // size_of(given[0][0], (1,))
    whole = given[0][1][-1] == work.n and math.prod(given[0][1]) == work.m * work.n
    return left // work.n if whole and left % work.n == 0 and left != work.m else 0


_GATHERS = ("aten::index", "aten::index_select", "aten::repeat", "aten::repeat_interleave")
_ADDS_ROWS = re.compile(r"index_add|index_put|scatter_add|embedding_dense")
"""Gradients of gathers."""


class _Gather(NamedTuple):
    """An op that gathers or repeats rows for a product."""

    place: int
    part: float
    """Rows from which it gathers, relative to those that it writes."""
    width: int
    """Numbers of a row."""


def rows_repeated_before(base: Baseline) -> Finding | None:
    """Find products of rows that were just gathered or repeated from half as many or fewer, or joined from such parts,
    and what follows on each row alone, with gradients. If that comes first, it has fewer rows, and gathers have rows as
    wide as its result."""
    ops, works, backward = base.ops, _products(base.ops), in_phase(base.ops, "backward")
    factor, times, moves = np.ones(len(ops)), 0, _moves(ops)
    for place, work in enumerate(works):
        if work is None or backward[place] or work.groups > 1 or not work.weight:
            continue
        if gathers := _gathered_before(base, place, work, moves):
            behind = [place, *(_behind(base, works, place, work.m) if len(gathers) == 1 else ())]
            last = [each for at in behind if (each := works[at])][-1]
            kept = np.ones(len(ops))
            kept[behind] = part = _part_of_rows(work, gathers)
            gradients = _of_gradients(base, works, behind) & backward
            kept[gradients] = part
            for at in (*range(gathers[0].place, place), *np.flatnonzero(backward & _adds_rows(base, work, gathers))):
                kept[at] = _narrower(base, at, last)
            factor, times = np.minimum(factor, kept), times + 1
    return _by(factor, times, "rows-repeated") if times else None


def _gathered_before(base: Baseline, place: int, work: Product, moves: Rows) -> list[_Gather]:
    """Return the gathers among the few moves right before a product that make its rows, or columns that are joined to
    these."""
    before = moves[max(place - _SOON, 0) : place][::-1]
    near = range(place - int(np.argmin(np.append(before, False))), place)
    joined = any(base.ops.name[at] == "aten::cat" for at in near)
    made = [each for each in (_gather(base, at, work.m) for at in near) if each and each.part * _LESS <= 1]
    return [each for each in made if each.width == work.k or (joined and each.width < work.k)]


def _moves(ops: OpList) -> Rows:
    """Select the ops that only move rows."""
    moves = which(ops.name, ("aten::cat", "aten::copy_", "aten::fill_").__contains__)
    return moves | which(ops.call, _GATHERS.__contains__)


def _gather(base: Baseline, place: int, rows: int) -> _Gather | None:
    """Return what an op gathers or repeats to so many rows; None: it does not."""
    cost, source = base.ops.cost[place], base.recorded.sources(base.ops[place : place + 1])[0]
    if cost is None or base.ops.call[place] not in _GATHERS or not rows:
        return None
    element = ELEMENT_BYTES[cost.precision]
    written, before = cost.write_bytes / element, math.prod(source) if source else cost.read_bytes / element
    return _Gather(place, before / written, round(written / rows)) if written and written % rows == 0 else None


def _part_of_rows(work: Product, gathers: Sequence[_Gather]) -> float:
    """Return the operations that remain if each part of a row is multiplied before it is gathered."""
    return 1 - sum(each.width * (1 - each.part) for each in gathers) / work.k


def _narrower(base: Baseline, place: int, work: Product) -> float:
    """Return how wide the rows that an op moves are afterwards, as those of the product's result; 1: it moves none."""
    sizes = [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    widths = [size // work.m for size in sizes if size % work.m == 0]
    return min(1.0, work.n / max(*widths, 1, 1))


_DRAWS = re.compile(r"dropout|bernoulli|rand|normal_|uniform_")


def _behind(base: Baseline, works: Products, place: int, rows: int) -> Iterator[int]:
    """Yield the places of the ops behind a product that work on each of its rows alone, up to the first that does not:
    it mixes rows, draws numbers, or reads another tensor of as many."""
    for later in range(place + 1, len(base.ops)):
        sizes, cost, work = _sizes_of(base, later, rows), base.ops.cost[later], works[later]
        if not sizes and base.ops.name[later] != "aten::cat":
            continue
        alone = work is not None and work.m == rows and bool(work.weight)
        alone |= cost is not None and (
            cost.family == "copy" or (cost.family in ("pointwise", "norm") and len(sizes) == 1)
        )
        if not alone or _DRAWS.search(base.ops.name[later]):
            return
        yield later


def _sizes_of(base: Baseline, place: int, rows: int) -> list[int]:
    """Return how many numbers the tensors of an op have that have so many rows."""
    sizes = [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    return [size for size in sizes if size >= rows and size % rows == 0]


def _of_gradients(base: Baseline, works: Products, places: Sequence[int]) -> Rows:
    """Select the gradients of these ops: of products, by their sizes, and of others, by those of their results."""
    products = [work for place in places if (work := works[place])]
    sides, sizes = {_sides(work) for work in products}, {work.m * work.n for work in products}
    of_rows = which(base.ops.name, lambda name: not _ROWS_BY_INDEX.search(name)) & (len(places) > 1)
    return np.array(
        [
            _sides(work) in sides if work else of_rows[at] and bool(sizes & set(_sizes_of(base, at, products[0].m)))
            for at, work in enumerate(works)
        ],
        dtype=bool,
    )


_ROWS_BY_INDEX = re.compile(r"gather|index|scatter|embedding")


def _adds_rows(base: Baseline, work: Product, gathers: Sequence[_Gather]) -> Rows:
    """Select the gradients of these gathers."""
    sizes = {work.m * each.width for each in gathers}
    adds = which(base.ops.name, _ADDS_ROWS.search)
    for place in np.flatnonzero(adds).tolist():
        adds[place] = any(math.prod(shape) in sizes for _, shape in tensors_in(base, place, place + 1))
    return adds
