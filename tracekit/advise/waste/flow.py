"""What the ops of a step read beside weights, and what they may write, by sizes."""

import math
import re
from itertools import chain
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.factorizations import OF_LIBRARY
from tracekit.advise.waste.repeats import Tensors, joined_in, size_of, tensors_in
from tracekit.advise.waste.rounds import JOINS
from tracekit.analyzers.attribute import TO_DEVICE, TO_HOST
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, Rows, in_phase, remembered, which

DRAWS = re.compile(r"rand|dropout|bernoulli|normal_|uniform_|multinomial|exponential_")
_FILLS = re.compile(r"^aten::(?:fill_|zero_|zeros|ones|full|eye|arange|linspace)$")
TAKES_ROWS = re.compile(r"^aten::index(?:_select)?$")
_OF_LISTS = re.compile(r"^aten::_?(?:index\w*|foreach\w*|fused\w*|put\w*|nonzero|unique\w*|masked_select)$")
"""Ops on lists of tensors that a trace does not record, or that make a tensor of a size that depends on numbers."""
MAKES_INDICES = re.compile(r"arg\w+$|topk|sort|nonzero|randperm|randint")
_EMBEDS, _OF_TWO = "aten::embedding", re.compile(r"^aten::(?:matmul|mm|bmm|einsum|baddbmm)$")
"""Calls that read a table of weights, and those that may multiply what two networks made."""
INTEGERS = ("long int", "int")

_SOON = 4
"""Ops within which a result of unknown size is used."""
_IN_CACHE = 4
"""Most times the bandwidth of memory that a cache has."""

Sizes = set[int]
Read = tuple[str, int]
"""Type and size in bytes of a tensor."""


class Flow(NamedTuple):
    """What each op of a step reads beside weights, and the sizes in bytes that it may write."""

    reads: list[list[Read]]
    writes: list[Sizes]
    free: Rows
    """Whether the op is of a forward pass without a gradient, draws nothing, and has to do with no list and no host."""
    casts: Rows
    """Whether the op casts a weight for the product of its call."""
    viewed: Rows
    """Whether the program took a part of a tensor for the op."""
    last: dict[int, int]
    """Place of the last op that writes a tensor of a size."""
    changed: set[tuple[str, tuple[int, ...]]]
    """Type and sides of each tensor that the program changes in place, and of an item of it."""


@remembered
def flow_of(base: Baseline) -> Flow:
    """Return what the ops of a step read and write."""
    ops, recorded = base.ops, base.recorded
    reads = [_reads(base, place) for place in range(len(ops))]
    writes = [_writes(base, place, soon(reads, place)) for place in range(len(ops))]
    free = which(ops.call, lambda call: call.startswith("aten::") and not DRAWS.search(call) and call not in JOINS[1:])
    free &= ~which(ops.name, lambda name: bool(DRAWS.search(name) or _OF_LISTS.match(name)))
    free &= ~in_phase(ops, "backward") & ~in_phase(ops, "optimizer") & ~recorded.has_node(ops)
    free &= ~recorded.copies_like(ops, TO_DEVICE) & ~recorded.copies_like(ops, TO_HOST)
    casts = np.array([_casts_weight(base, place) for place in range(len(ops))], dtype=bool)
    free &= casts | which(ops.name, _FILLS.match) | np.array([bool(each) for each in reads])
    viewed = recorded.takes_part(ops) | recorded.selects(ops) | recorded.reads_windows(ops)
    same_call = np.append(False, (ops.call[1:] == ops.call[:-1]) & (ops.call[1:] != ops.name[1:]))
    for place in np.flatnonzero(same_call).tolist():
        viewed[place] |= viewed[place - 1]
    last = {size: place for place, sizes in enumerate(writes) for size in sizes}
    in_place = np.flatnonzero(which(ops.call, lambda call: call.endswith("_"))).tolist()
    firsts = [first for place in in_place for first in tensors_in(base, place, place + 1)[:1]]
    changed = {(kind, sides) for kind, shape in firsts for sides in (shape, shape[1:])}
    return Flow(reads, writes, free, casts, viewed, last, changed)


def soon(reads: list[list[Read]], place: int) -> list[Read]:
    """Return what the next ops read."""
    return list(chain(*reads[place + 1 : place + 1 + _SOON]))


def _reads(base: Baseline, place: int) -> list[Read]:
    """Return the type and size of each tensor that an op reads, but for weights."""
    ops, cost = base.ops, base.ops.cost[place]
    given = tensors_in(base, place, place + 1)
    if _casts_weight(base, place):
        return []
    if ops.name[place] == "aten::copy_":
        return [(kind, size_of(kind, shape)) for kind, shape in given[1:]]
    if ops.call[place] in JOINS and (parts := joined_in(base, place)) and cost is not None:
        each = cost.write_bytes // max(sum(map(math.prod, parts)), 1)
        return [("", each * math.prod(part)) for part in parts]
    if ops.call[place] == _EMBEDS:
        width, words = given[0][1][-1:], [each for each in given[1:] if each[0] in INTEGERS]
        one_each = [(kind, shape[:-1] if len(shape) > 1 and shape[-1:] == width else shape) for kind, shape in words]
        return [(kind, size_of(kind, shape)) for kind, shape in one_each[:1]]
    if ops.call[place].startswith("aten::conv") and cost is not None and cost.family == "convolution":
        return [(kind, size_of(kind, shape)) for kind, shape in given[:1]]
    data = [each for each in given if sum(side > 1 for side in each[1]) > 1 or (len(each[1]) > 1 and each[1][0] > 1)]
    large = [(kind, size_of(kind, shape)) for kind, shape in data]
    if cost is not None and cost.weight_bytes and not _OF_TWO.match(ops.call[place]):
        return [each for each in large if each[1] != cost.weight_bytes] or large[:1]
    return large or [(kind, size_of(kind, shape)) for kind, shape in given]


def _casts_weight(base: Baseline, place: int) -> bool:
    """Return whether an op copies a vector, or what the product or convolution of its call reads as its weight."""
    ops, given = base.ops, tensors_in(base, place, place + 1)[:1]
    if ops.name[place] != "aten::copy_" or ops.call[place] == "aten::copy_" or not given:
        return False
    same = [at for at in range(place + 1, min(place + 1 + _SOON, len(ops))) if ops.call[at] == ops.call[place]]
    weights = [sides for at in same if (sides := weight(base, at))][:1]
    return bool(weights) and (len(given[0][1]) == 1 or sorted(given[0][1]) == sorted(weights[0]))


def _writes(base: Baseline, place: int, later: list[Read]) -> Sizes:
    """Return the sizes that an op may write: if they are not known, those that are read soon, that its time is enough
    for, and that are of its type."""
    ops, cost = base.ops, base.ops.cost[place]
    given = tensors_in(base, place, place + 1)
    first = {size_of(*each) for each in given[:1]}
    copied = {int(each) for each in base.recorded.copied_bytes(ops[place : place + 1]) if each}
    if cost is not None:
        return copied | {int(cost.write_bytes)} | (first if cost.family == "norm" else set())
    if OF_LIBRARY.match(ops.name[place]) and given:
        return copied | _parts_of_matrices(*given[0])
    most = _IN_CACHE * base.gpu.bandwidth * ops.kernel_ns[place] / 1e9
    kinds = _kinds_of_rows(ops.name[place], ops.call[place], given) or {kind for kind, _ in later}
    made = {size for kind, size in later if kind in kinds and size <= most}
    return copied | made | (first if ops.name[place].endswith("_") else set())


def _parts_of_matrices(kind: str, shape: tuple[int, ...]) -> Sizes:
    """Return the sizes of what a function of matrices makes: factors, vectors, or a number of each."""
    items, sides = shape[:-2], shape[-2:]
    pairs = {(one, other) for one in sides for other in sides}
    return {size_of(kind, (*items, *part)) for part in (*pairs, *((side,) for side in sides), ())}


def _kinds_of_rows(name: str, call: str, given: Tensors) -> set[str]:
    """Return the types that an op writes which takes rows or makes indices; none for others."""
    makes = bool(MAKES_INDICES.search(call))
    return {kind for kind, _ in given[:1] if makes or TAKES_ROWS.match(name)} | ({"long int"} if makes else set())


def weight(base: Baseline, place: int) -> tuple[int, ...]:
    """Return the sides of the weight of a product or a convolution; () for others."""
    cost, given = base.ops.cost[place], tensors_in(base, place, place + 1)
    if cost is not None and cost.family == "convolution" and len(given) > 1:
        return given[1][1]
    return (work.k, work.n) if cost is not None and isinstance(work := cost.work, Product) and work.weight else ()
