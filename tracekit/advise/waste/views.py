"""Detector of work on rows that a view repeats, as overlapping windows and expanded dimensions do."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.gathered import DRAWS, of_gradients
from tracekit.advise.waste.repeats import codes_of, gathered_from, layouts, product_of, tensors_in
from tracekit.analyzers.attribute import TO_HOST
from tracekit.analyzers.cost import ELEMENT_BYTES, Attention, Cost, Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, in_phase

_LESS = 2
"""Times that each row is written on average from which it is repeated."""
_ONE_BY_ONE = ("pointwise", "copy")
"""Families of ops that work on each number alone."""
_OF_A_ROW = ("softmax", "reduction", "convolution")
"""Families of ops that may mix the numbers of a row."""

_PARTS = 8
"""Equal parts, and fewer, into which programs split what a layer makes."""

Shape = tuple[int, ...]


class _Copy(NamedTuple):
    """Rows that an op wrote, of which some are equal."""

    rows: int
    distinct: int
    numbers: int
    """Numbers that it wrote."""


def work_on_repeated_rows(base: Baseline) -> Finding | None:
    """Find what works row by row on rows of which a copy wrote each several times, until an op mixes rows: weights
    multiply each as often, and in each round. If windows are taken from the results, each is computed once."""
    ops, factor, times = base.ops, np.ones(len(base.ops)), 0
    backward, again = in_phase(ops, "backward"), np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(ops.costed & ~backward).tolist():
        made = _copied(base, place) if factor[place] == 1 else None
        behind = list(_row_by_row(base, place, made)) if made else []
        later = _in_later_rounds(base, behind, made) if made and behind else []
        products = [at for at in (*behind, *later) if _multiplies(ops.cost[at])]
        if made and products:
            gradients = of_gradients(base, list(map(product_of, ops.cost)), products) & backward
            part = made.distinct / made.rows
            factor[behind + later] = [_left(base, at, part) for at in (*behind, *later)]
            factor[gradients] = part
            again[later] = not base.trains
            factor[place], times = min(1.0, _numbers(ops.cost[behind[-1]]) / made.numbers), times + len(products)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        """Shorten what works on each row; leave out, except in the worst outcome, what inference computed before."""
        shorter = run.ops.assign(kernel_ns=run.ops.kernel_ns * factor)
        return shorter if outcome == "worst" else shorter[~again]

    return Finding(factor < 1, change, times, way="rows-repeated") if times else None


def _left(base: Baseline, place: int, part: float) -> float:
    """Return the part of the time of an op on all rows that it takes on this part of them. What fills a part of a
    larger tensor, as a cache of keys, writes all rows: later ops read each."""
    cost, (shape, strides) = base.ops.cost[place], _view(base, place, 0)
    if base.ops.name[place] != "aten::copy_" or _extent(shape, strides) <= math.prod(shape):
        return part
    return float((part * cost.read_bytes + cost.write_bytes) / (cost.read_bytes + cost.write_bytes))


def _copied(base: Baseline, place: int) -> _Copy | None:
    """Return the rows that an op copies from a view that repeats them, or gathers from fewer; None: it does neither."""
    cost = base.ops.cost[place]
    if base.ops.name[place] == "aten::copy_":
        shape, strides = _view(base, place, 1)
        rows, distinct = _rows_of(shape, strides)
        return _Copy(rows, distinct, math.prod(shape)) if rows else None
    source, numbers = gathered_from(base, place), _numbers(cost)
    if source is None or not source[1] or numbers % source[1] or _LESS * source[0] * source[1] > numbers:
        return None
    return _Copy(numbers // source[1], source[0], numbers)


def _view(base: Baseline, place: int, given: int) -> tuple[Shape, Shape]:
    """Return the shape and strides of a tensor that an op is given, as the second one that a copy reads; () if they
    were not recorded."""
    source = next(iter(layouts(base, place)[given : given + 1]), ((), ()))
    return next(iter(_flat(*source)), ((), ()))


def _extent(shape: Shape, strides: Shape) -> int:
    """Return how many numbers lie between the first and the last one of a view, with both."""
    return 1 + sum((side - 1) * step for side, step in zip(shape, strides, strict=True))


def _rows_of(shape: Shape, strides: Shape) -> tuple[int, int]:
    """Return how many rows a view has and how many of them differ, if leading dimensions repeat whole rows; else 0."""
    for at in range(1, len(shape) + 1):
        leading = [(side, step) for side, step in zip(shape[:at], strides[:at], strict=True) if side > 1]
        extent = _extent(shape[at:], strides[at:])
        step = math.gcd(*(step for _, step in leading))
        rows = math.prod(side for side, _ in leading)
        distinct = 1 + sum((side - 1) * step for side, step in leading) // step if step else 1
        if (step >= extent or not step) and distinct * _LESS <= rows:
            return rows, distinct
    return 0, 0


def _numbers(cost: Cost) -> int:
    """Return how many numbers an op writes."""
    work = cost.work
    if isinstance(work, Product):
        return work.groups * work.m * work.n
    return round(cost.write_bytes / ELEMENT_BYTES[cost.precision])


def _multiplies(cost: Cost) -> bool:
    return isinstance(cost.work, Product) and bool(cost.work.weight)


def _row_by_row(base: Baseline, place: int, made: _Copy) -> Iterator[int]:
    """Yield the places of the ops behind a copy that work on each of its rows alone, up to the first that does not. A
    tensor is made of the rows if it has them, and nothing before the copy was as large."""
    ops, sizes = base.ops, {made.numbers}
    older = {math.prod(shape) for _, shape in tensors_in(base, 0, place)}
    older |= {_numbers(cost) for cost in ops.cost[:place] if cost is not None}
    for later in range(place + 1, len(ops)):
        shapes, cost = _shapes(base, later), ops.cost[later]
        of_rows = [each for each in shapes if _leads(each, made.rows) and _is_part(math.prod(each), sizes)]
        touched = {math.prod(each) for each in shapes} | ({_numbers(cost)} if cost is not None else set())
        if not of_rows and (cost is None or sizes & touched):
            return
        if of_rows:
            rest = [each for each in shapes if each not in of_rows]
            if cost is None or older & touched:
                return
            looks_up = cost.family == "gather" and base.ops.call[later] == "aten::embedding"
            by_rows = sizes == {made.numbers} and len(of_rows) == 1  # by others, once something was made of the rows
            if not (by_rows if looks_up else _is_alone(base, later, cost, of_rows, rest, made.rows)):
                return
            sizes |= {_numbers(cost), *map(math.prod, of_rows)}
            yield later


def _in_later_rounds(base: Baseline, behind: list[int], made: _Copy) -> list[int]:
    """Return the places of ops that are equal to these on the copied rows, as each round of a search has them, up to
    another op that writes as many numbers as the copy did."""
    codes, first, later = codes_of(base), np.array(behind), list[int]()
    place = behind[-1] + 1
    while place + behind[-1] - behind[0] < len(base.ops):
        moved = first + (place - behind[0])
        equal = bool((codes[moved] == codes[first]).all())
        if not equal and ((cost := base.ops.cost[place]) is None or _numbers(cost) == made.numbers):
            break
        later += moved.tolist() if equal else []
        place = int(moved[-1]) + 1 if equal else place + 1
    return later


def _shapes(base: Baseline, place: int) -> list[Shape]:
    """Return the shapes of an op's inputs, those of lists of tensors, too; of dimensions that are expanded, 1."""
    laid = [each for pair in layouts(base, place) for each in _flat(*pair)]
    expanded = [tuple(side if step else 1 for side, step in zip(*each, strict=True)) for each in laid]
    return expanded or [shape for _, shape in tensors_in(base, place, place + 1)]


def _flat(shape: Any, strides: Any) -> Iterator[tuple[Shape, Shape]]:
    """Yield the shape and strides of a tensor, or of each one of a list."""
    if not (isinstance(shape, list) and isinstance(strides, list) and len(shape) == len(strides)):
        return
    if shape and all(isinstance(each, int) for each in (*shape, *strides)):
        yield tuple(shape), tuple(strides)
    for each in zip(shape, strides, strict=True):
        yield from _flat(*each)


def _is_part(numbers: int, sizes: set[int]) -> bool:
    """Return whether a tensor of so many numbers is one of these sizes, or a part, such as keys beside values."""
    return any(size == numbers * parts for size in sizes for parts in range(1, _PARTS))


def _leads(shape: Shape, rows: int) -> bool:
    return bool(_dims_of(shape, rows))


def _dims_of(shape: Shape, rows: int) -> int:
    """Return how many leading dimensions are the rows, or more than one row each; 0: none are."""
    if shape and shape[0] and shape[0] % rows == 0:
        return 1
    return next((at for at in range(2, len(shape) + 1) if math.prod(shape[:at]) == rows), 0)


def _is_alone(base: Baseline, place: int, cost: Cost, of_rows: list[Shape], rest: list[Shape], rows: int) -> bool:
    """Return whether an op works on each row alone, whose tensors `of_rows` have the rows and the `rest` does not."""
    work, whole = cost.work, all(shape[0] % rows == 0 for shape in of_rows)
    if DRAWS.search(base.ops.name[place]) or base.recorded.copies_like(base.ops, TO_HOST)[place]:
        return False
    if isinstance(work, Product):
        return (work.m if work.weight else work.groups) % rows == 0 and (whole or cost.family == "gemm")
    if isinstance(work, Attention):
        return work.batch % rows == 0
    if cost.family in _ONE_BY_ONE:
        return all(_is_for_each_row(shape, of_rows[0], rows) for shape in rest)
    of_one = whole and _numbers(cost) % rows == 0
    return (cost.family == "norm" and not getattr(work, "channels", 0)) or (cost.family in _OF_A_ROW and of_one)


def _is_for_each_row(shape: Shape, of_rows: Shape, rows: int) -> bool:
    """Return whether an operand is the same for all rows, as one that is broadcast over them, or joined to each."""
    beyond = len(of_rows) - len(shape)
    return math.prod(shape[: max(_dims_of(of_rows, rows) - beyond, 0)]) == 1
