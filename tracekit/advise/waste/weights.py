"""Detectors of weights that inference makes ready again in each pass: casts, scales, norms, adapters, gathers."""

import math
import re
from functools import partial

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.casts import is_cast
from tracekit.advise.waste.finding import STAYS, Finding, lessened, longest, removed
from tracekit.advise.waste.repeats import gathered_from, tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, where, which


def weights_made_ready(base: Baseline) -> Finding | None:
    """Find what inference does with weights before their products: casts, else scales and norms, or adapters beside
    them, whichever takes most time."""
    if base.trains:
        return None
    ways = {"weights-made": _made_of_weights(base), "adapters-apart": _adapters(base)}
    found = [Finding(rows, removed(rows), int(rows.sum()), way=way) for way, rows in ways.items() if rows.any()]
    spent = base.ops.kernel_ns + base.ops.host_ns
    return longest((*found, _cast_in_each_pass(base)), spent)


def _cast_in_each_pass(base: Baseline) -> Finding | None:
    """Find casts of weights. In a model of one type, other ops cast nothing either, except at worst."""
    rows = _casts(base)
    others = rows | (_within_ops(base.ops) if rows.any() else rows)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return run.ops[~(rows if outcome == "worst" else others)]

    return Finding(rows, change, int(rows.sum())) if rows.any() else None


_OF_PROGRAM = re.compile(r"^aten::(?:to|_to_copy|copy_|clone|contiguous|float|half)$")


def _within_ops(ops: OpList) -> Rows:
    """Select casts that other ops make of their inputs, as under autocast, and not the program."""
    casts = where(ops, is_cast) & ~which(ops.call, _OF_PROGRAM.match)
    return np.asarray(casts | _copies_of_products(ops, 0))


def _casts(base: Baseline) -> Rows:
    """Select casts of weights right before the product that reads them, with those of their biases."""
    ops = base.ops
    casts = where(ops, lambda cost: is_cast(cost) and cost is not None and cost.read_bytes > cost.write_bytes)
    rows = np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(casts).tolist():
        later = [cost for cost in ops.cost[place + 1 : place + 4] if cost is not None]
        rows[place] = any(cost.weight_bytes == ops.cost[place].write_bytes for cost in later)
        rows[place - 1] |= rows[place] and casts[place - 1] and ops.call[place - 1] == ops.call[place] in CASTING
    return np.asarray(rows | _copies_of_products(ops, 1))


CASTING = ("aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::addmm")


def _copies_of_products(ops: OpList, kept: int) -> Rows:
    """Select the copies without shapes that autocast makes of weights and biases: of two or three right before a
    product in one call, all but the `kept` last ones, the first of which is of the input."""
    rows = np.zeros(len(ops), dtype=bool)
    copies = (ops.name == "aten::copy_") & ~ops.costed & which(ops.call, CASTING.__contains__)
    for place in np.flatnonzero(~copies & which(ops.call, CASTING.__contains__)).tolist():
        begin = place
        while begin and copies[begin - 1] and ops.call[begin - 1] == ops.call[place] and place - begin < _OPERANDS:
            begin -= 1
        if place - begin > 1:
            rows[begin : place - kept] = True
    return rows


_OPERANDS = 3
"""Tensors that a product casts: its bias, its weight, and its input."""
_MAKES = ("pointwise", "copy", "reduction", "norm")
_CHAIN = 8
"""Most ops that make a weight ready."""


LARGER = 8
"""Times by which an operand of no layer is larger than the other one from which it may be what stays."""


def _made_of_weights(base: Baseline) -> Rows:
    """Select the ops before a product that work on its weight alone, by the sizes of their tensors: the last of them
    writes as much as the weight has."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    for place in np.flatnonzero(products(ops)).tolist():
        weight, activation = _operands(base, place)
        begin = place
        while begin > max(place - _CHAIN, 0) and _is_about(base, begin - 1, weight, activation):
            begin -= 1
        if begin < place and _stays(base, place, begin):
            rows[begin:place] = True
    return rows


def _stays(base: Baseline, place: int, begin: int) -> bool:
    """Return whether the op before a product may write its weight: that of a layer, else an operand as large as nothing
    that the step made before, beside one that the step made."""
    ops, (weight, activation) = base.ops, _operands(base, place)
    made = [any(writes(cost, size) for cost in ops.cost[:begin]) for size in (weight, activation)]
    layer = ops.call[place] in CASTING
    return bool(weight and writes(ops.cost[place - 1], weight) and (layer or made == [False, True]))


def _operands(base: Baseline, place: int) -> tuple[int, int]:
    """Return the elements of a product's weight and of its activation; 0 where they are not known or equal."""
    cost, shapes = base.ops.cost[place], [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    if cost is None or len(shapes) < 2:
        return 0, 0
    work, layer = cost.work, base.ops.call[place] in CASTING
    plain = isinstance(work, Product) and cost.family == "gemm"
    weight, activation = (work.k * work.n, work.m * work.k) if plain else (shapes[1], shapes[0])
    if not layer and plain:
        weight, activation = max(weight, activation), min(weight, activation)
    known = weight != activation if layer else plain and work.groups == 1 and weight >= LARGER * activation
    return (weight, activation) if known else (0, 0)


def _is_about(base: Baseline, place: int, weight: int, activation: int) -> bool:
    cost, sizes = base.ops.cost[place], [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    of_weight = bool(sizes) and max(sizes) <= weight and activation not in sizes
    return cost is not None and cost.family in _MAKES and of_weight and bool(base.ops.category[place] == "kernel")


def writes(cost: Cost | None, elements: int) -> bool:
    return cost is not None and cost.write_bytes in (elements, 2 * elements, 4 * elements)


_ADAPTED = 4
"""Fewest layers with adapters, and times by which they are narrower than their input."""


def _adapters(base: Baseline) -> Rows:
    """Select pairs of narrow products beside a layer's product, whose results are added to its own."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    places = np.flatnonzero(products(ops) & where(ops, _has_weight)).tolist()
    found = 0
    for one, down, up in zip(places, places[1:], places[2:], strict=False):
        add = _added(base, up)
        if add and _narrows(*(ops.cost[place].work for place in (one, down, up))) and up - one < _SOON:
            rows[down : add + 1], found = True, found + 1
    return rows if found >= _ADAPTED else np.zeros(len(ops), dtype=bool)


def _has_weight(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Product) and cost.work.weight == "b"


def _narrows(one: Product, down: Product, up: Product) -> bool:
    """Return whether two products lead from the first one's input to the size of its result through a narrow one."""
    same = one.m == down.m == up.m and one.k == down.k and one.n == up.n
    return same and down.n == up.k <= min(one.k, one.n) / _ADAPTED


def _added(base: Baseline, up: int) -> int:
    """Return the place at which a product's result is added to another of its size; 0 if it is not."""
    ops, size = base.ops, base.ops.cost[up].work.m * base.ops.cost[up].work.n
    for place in range(up + 1, min(up + 1 + _ADAPTED, len(ops))):
        sizes = [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
        if ops.name[place] in ("aten::add", "aten::add_") and sizes == [size, size]:
            return place
        if size not in sizes:
            return 0
    return 0


_SOON = 6
"""Ops within which a product reads what was gathered for it."""


def weights_for_each_item(base: Baseline) -> Finding | None:
    """Find matrices that are gathered for each item, and the products right after that read each copy once."""
    sources, ops = [gathered_from(base, place) for place in range(len(base.ops))], base.ops
    copies, reads, matrices = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool), 1
    for place, (number, elements) in [(at, source) for at, source in enumerate(sources) if source is not None]:
        for later in range(place + 1, min(place + _SOON, len(ops))):
            work = getattr(ops.cost[later], "work", None)
            if isinstance(work, Product) and work.groups >= 2 * number and work.n * work.k == elements:
                copies[place], reads[later], matrices = True, True, max(matrices, number)
    if not copies.any():
        return None
    grouped = lessened(reads, STAYS, cost=partial(_grouped, matrices=matrices))
    return Finding(copies, lambda base, outcome: grouped(base, outcome)[~copies], int(copies.sum()))


def _grouped(cost: Cost, matrices: int) -> Cost:
    """Return the cost if the items of each matrix are rows of one product."""
    work = cost.work
    if not isinstance(work, Product) or work.groups <= matrices:
        return cost
    one, all_items = work.n * work.k, work.groups * work.m * work.k
    read = round(cost.read_bytes * (all_items + matrices * one) / (all_items + work.groups * one))
    rows = math.ceil(work.groups * work.m / matrices)
    return replace(cost, read_bytes=read, work=replace(work, groups=matrices, m=rows, weight="b"))
