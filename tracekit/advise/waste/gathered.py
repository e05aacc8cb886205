"""Detectors of layers that run on each gathered row, though each depends on a row of the source."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.order import Products, by_factors, products_of, sides_of
from tracekit.advise.waste.repeats import gathered_from, joined_in, tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, Product
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, which

_KNOWN = outcomes(__file__)

_GATHERS = re.compile(r"^aten::(?:gather|index|index_select)$")
_SUMS = re.compile(r"^aten::(?:index_add|scatter_add|scatter_reduce|segment_reduce)_?$")
_MAKES = re.compile(r"norm$|mm$|relu|gelu|silu|tanh$|^aten::add_?$")
"""Ops that end a layer, and make what is gathered."""
_ROW_BY_ROW = re.compile(
    r"^aten::(?:to|linear|layer_norm|rms_norm|relu|gelu|silu|tanh|sigmoid|leaky_relu|elu|softplus)_?$"
)
_FILLS = "aten::fill_"
"""The op that makes what the rows will be added to."""
_OF_GRADIENTS = re.compile(r"mm$|_backward$|^aten::(?:sum|copy_)$")
_TIMES = 8
"""Times as long as the op that makes the source a gather takes from which it repeats rows."""
_SOON = 6
"""Ops behind a network within which the rows are added up."""


def networks_on_gathered_rows(base: Baseline) -> Finding | None:
    """Find networks that read nothing but rows that were just gathered, and whose results are added up by index, as
    messages along edges are. A gather that takes many times as long as the op that made its source repeats its rows."""
    ops, rows, part, times = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0, 0
    gathers, sums = (_named(ops, pattern) & ~in_phase(ops, "backward") for pattern in (_GATHERS, _SUMS))
    if ops.costed.any():
        return None
    for place in np.flatnonzero(gathers).tolist():
        made = ops.kernel_ns[place - 1] / ops.kernel_ns[place] if place and _MAKES.search(ops.name[place - 1]) else 1.0
        end = _end_of_network(ops, place + 1)
        if made * _TIMES <= 1 and end > place + 1 and sums[end : end + _SOON].any():
            rows[place + 1 : end] = ops.name[place + 1 : end] != _FILLS
            part, times = max(part, made), times + 1
    if not times:
        return None
    for start, end in _between_sums(ops):
        rows[start:end] |= _named(ops[start:end], _OF_GRADIENTS)
    return Finding(rows, lessened(rows, Outcomes(2 * part, part, part / 2)), times, way="rows-repeated")


def _named(ops: OpList, pattern: re.Pattern[str]) -> Rows:
    return which(ops.name, pattern.search)


def _end_of_network(ops: OpList, begin: int) -> int:
    """Return the place after the layers that begin here and work on each row alone; `begin` if none multiplies."""
    alone = which(ops.call[begin:], _ROW_BY_ROW.match) | (ops.name[begin:] == _FILLS)
    end = begin + int(np.argmin(np.append(alone, False)))
    return end if products(ops)[begin:end].any() else begin


def _between_sums(ops: OpList) -> Iterator[tuple[int, int]]:
    """Yield the stretches of the backward pass from the gradient of a sum by index to that of a gather."""
    backward = in_phase(ops, "backward")
    gathers, sums = (np.flatnonzero(backward & _named(ops, pattern)) for pattern in (_GATHERS, _SUMS))
    for start in gathers.tolist():
        later = sums[sums > start]
        if len(later) and not ((gathers > start) & (gathers < later[0])).any():
            yield start + 1, int(later[0])


_COPIES_ROWS = ("aten::index", "aten::index_select", "aten::repeat", "aten::repeat_interleave")
_ADDS_ROWS = re.compile(r"index_add|index_put|scatter_add|embedding_dense")
"""Gradients of gathers."""


_LESS = 2
"""Rows written for each one that is read from which their order matters."""
_AT_ONCE = 4
"""Ops within which a product reads what was gathered for it."""


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
    ops, works, backward = base.ops, products_of(base.ops), in_phase(base.ops, "backward")
    factor, times, moves = np.ones(len(ops)), 0, _moves(ops)
    for place, work in enumerate(works):
        if work is None or backward[place] or work.groups > 1 or not work.weight:
            continue
        if gathers := _gathered_before(base, place, work, moves):
            behind = [place, *(_behind(base, works, place, work.m) if gathers[0].width == work.k else ())]
            last = [each for at in behind if (each := works[at])][-1]
            kept = np.ones(len(ops))
            kept[behind] = part = _part_of_rows(work, gathers)
            gradients = of_gradients(base, works, behind) & backward
            kept[gradients] = part
            adds = np.flatnonzero(backward & _adds_rows(base, work, gathers))
            for at in (*range(gathers[0].place, place), *adds):
                kept[at] = _narrower(base, at, last)
            joins = [at for at in range(gathers[0].place, place) if ops.name[at] == "aten::cat"]
            parts = len(gathers) + (sum(each.width for each in gathers) < work.k)
            kept[joins] = min(1.0, (parts + 1) * last.n / (2 * work.k))  # their products are added up, not joined
            if set(joins) >= {each.place for each in gathers} and part * _TIMES <= 1:
                kept[[*range(joins[0], place), *_casts_of_rows(base, work)]] = 0.0
                kept[joins[0]] = min(
                    1.0, _written_ns(base, place) / ops.kernel_ns[joins[0]]
                )  # a sum of both, spread out
            for each in gathers:
                if each.place not in joins:
                    kept[each.place] = _gathered_later(
                        base, each, work.m, kept[each.place], adds=bool(backward.any() and not len(adds))
                    )
            factor, times = np.minimum(factor, kept), times + 1
    return by_factors(factor, times, "rows-repeated") if times else None


def _gathered_later(base: Baseline, gather: _Gather, rows: int, part: float, *, adds: bool) -> float:
    """Return the part of the time of a gather that remains, with its gradient if it had none: what it reads is then
    made by a weight."""
    ns, least = base.ops.kernel_ns[gather.place], _KNOWN["gathers"].expected * rows
    left = max(part * ns, least if base.ops.name[gather.place] == "aten::gather" else 0.0)
    return min(1.0, left * (1 + _KNOWN["added"].expected * adds) / ns)


def _gathered_before(base: Baseline, place: int, work: Product, moves: Rows) -> list[_Gather]:
    """Return the gathers among the few moves right before a product that make its rows, or columns that are joined to
    these."""
    before = moves[max(place - _AT_ONCE, 0) : place][::-1]
    near = range(place - int(np.argmin(np.append(before, False))), place)
    joined = any(base.ops.name[at] == "aten::cat" for at in near)
    made = [each for at in near for each in _gathers(base, at, work.m) if each.part * _LESS <= 1]
    return [each for each in made if each.width == work.k or (joined and each.width < work.k)]


def _moves(ops: OpList) -> Rows:
    """Select the ops that only move rows."""
    moves = which(ops.name, ("aten::cat", "aten::copy_", "aten::fill_").__contains__)
    return moves | which(ops.call, _COPIES_ROWS.__contains__)


def _gathers(base: Baseline, place: int, rows: int) -> list[_Gather]:
    """Return what an op gathers or repeats to so many rows: the parts of a join of which strides of 0 tell that rows
    are repeated, or what else it writes."""
    if base.ops.name[place] != "aten::cat":
        return [each for each in (_gather(base, place, rows),) if each]
    shapes, strides = joined_in(base, place), joined_in(base, place, of=base.recorded.strides_of(base.ops))
    parts = zip(shapes, strides, strict=True) if len(shapes) == len(strides) else ()
    return [
        _Gather(place, math.prod(side for side, step in zip(shape[:-1], steps, strict=False) if step) / rows, shape[-1])
        for shape, steps in parts
        if math.prod(shape[:-1]) == rows > 0
    ]


def _gather(base: Baseline, place: int, rows: int) -> _Gather | None:
    """Return what an op gathers or repeats to so many rows; None: it does not."""
    cost, source = base.ops.cost[place], gathered_from(base, place)
    if cost is None or base.ops.call[place] not in _COPIES_ROWS or not rows:
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


DRAWS = re.compile(r"dropout|bernoulli|rand|normal_|uniform_|exponential_")
"""Ops that make equal rows differ."""


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
        if not alone or DRAWS.search(base.ops.name[later]):
            return
        yield later


def _sizes_of(base: Baseline, place: int, rows: int) -> list[int]:
    """Return how many numbers the tensors of an op have that have so many rows."""
    sizes = [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    return [size for size in sizes if size >= rows and size % rows == 0]


def of_gradients(base: Baseline, works: Products, places: Sequence[int]) -> Rows:
    """Select the gradients of these ops: of products, by their sizes, and of others, by those of their results."""
    multiplied = [work for place in places if (work := works[place])]
    sides, sizes = {sides_of(work) for work in multiplied}, {work.m * work.n for work in multiplied}
    of_rows = which(base.ops.name, lambda name: not _ROWS_BY_INDEX.search(name)) & (len(places) > 1)
    return np.array(
        [
            sides_of(work) in sides if work else of_rows[at] and bool(sizes & set(_sizes_of(base, at, multiplied[0].m)))
            for at, work in enumerate(works)
        ],
        dtype=bool,
    )


_ROWS_BY_INDEX = re.compile(r"gather|index|scatter|embedding")


def _written_ns(base: Baseline, place: int) -> float:
    """Return how long it takes at least to write the result of an op, in ns."""
    return base.ops.cost[place].write_bytes / base.gpu.bandwidth * 1e9


def _casts_of_rows(base: Baseline, work: Product) -> Iterator[int]:
    """Yield the places in the backward pass of copies of the gradient of what a product reads."""
    for place in np.flatnonzero(in_phase(base.ops, "backward") & (base.ops.name == "aten::copy_")).tolist():
        if any(math.prod(shape) == work.m * work.k for _, shape in tensors_in(base, place, place + 1)):
            yield place


def _adds_rows(base: Baseline, work: Product, gathers: Sequence[_Gather]) -> Rows:
    """Select the gradients of these gathers."""
    sizes = {work.m * each.width for each in gathers}
    adds = which(base.ops.name, _ADDS_ROWS.search)
    for place in np.flatnonzero(adds).tolist():
        adds[place] = any(math.prod(shape) in sizes for _, shape in tensors_in(base, place, place + 1))
    return adds
