"""Detector of networks that encode in each step what lies on the device: one input, or items that come again."""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.again import fits
from tracekit.advise.waste.finding import Finding, removed
from tracekit.advise.waste.frozen import sides_of, weight_gradients
from tracekit.advise.waste.repeats import Span, Tensors, inside, joined_in, size_of, tensors_in
from tracekit.advise.waste.rounds import JOINS, products
from tracekit.analyzers.attribute import TO_DEVICE, TO_HOST
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, Rows, in_phase, remembered, which

_DRAWS = re.compile(r"rand|dropout|bernoulli|normal_|uniform_|multinomial|exponential_")
_FILLS = re.compile(r"^aten::(?:fill_|zero_|zeros|ones|full|eye|arange|linspace)$")
_TAKES_ROWS = re.compile(r"^aten::index(?:_select)?$")
_OF_LISTS = re.compile(r"^aten::_?(?:index\w*|foreach\w*|fused\w*|put\w*|nonzero|unique\w*|masked_select)$")
"""Ops on lists of tensors that a trace does not record, or that make a tensor of a size that depends on numbers."""
_MAKES_INDICES = re.compile(r"arg\w+$|topk|sort|nonzero|randperm|randint")
_EMBEDS, _OF_TWO = "aten::embedding", re.compile(r"^aten::(?:matmul|mm|bmm|einsum|baddbmm)$")
"""Calls that read a table of weights, and those that may multiply what two networks made."""
_INTEGERS = ("long int", "int")

_PRODUCTS = 4
"""Fewest products of a network."""
_SOON = 4
"""Ops within which a result of unknown size is used."""
_IN_CACHE = 4
"""Most times the bandwidth of memory that a cache has."""
_LARGE = 1 << 16
"""Fewest bytes of an input that a step gets; less are numbers that the host chooses."""

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


def encoded_each_step(base: Baseline) -> Finding | None:
    """Find passes of networks without a gradient over what lies on the device and no op of the step writes, beside what
    is new in it; in training, over the rows that a step takes from a table that stays, too, which come again in each
    epoch. A network that the step trains, as its order of weights shows, encodes them differently each time."""
    ops, updates = base.ops, in_phase(base.ops, "optimizer").any()
    if base.growth is not None or in_phase(ops, "decode").any() or base.trains != updates or not ops.costed.any():
        return None
    flow = flow_of(base)
    new = _new_in(base)
    kinds, tables = {kind for kind, _ in new}, range(len(ops) * base.trains)
    items = {place: sizes for place in tables if (sizes := _rows_of_table(base, flow, place, kinds))}
    if not (items or new):
        return None
    stays = partial(_has_other_weights, base)
    if not base.trains:
        stays = partial(_is_of_other_items, base, flow, {shape[:1] for _, shape in new})
    found = [span for span in _passes(base, flow, items, stays) if fits(base, _kept(base, flow, span, items))]
    rows = inside(ops, found)
    beside = (products(ops) & ~rows).any()
    return Finding(rows, removed(rows), len(found), way="encoded-each-step") if found and beside else None


def _kept(base: Baseline, flow: Flow, span: Span, items: dict[int, Sizes]) -> float:
    """Return the bytes of what a stretch makes, of all items of the tables of which a step takes some."""
    batches = [size_of(*tensors_in(base, place, place + 1)[0]) / max(sizes) for place, sizes in items.items()]
    return max(flow.writes[span[1] - 1], default=0) * max([1.0, *batches])


def _new_in(base: Baseline) -> Tensors:
    """Return the type and shape of each large tensor that comes from the host in the step, or is drawn."""
    ops = base.ops
    drawn = which(ops.name, _DRAWS.search)
    written = np.array([cost.write_bytes if cost is not None else 0 for cost in ops.cost]) * drawn
    sent = base.recorded.copied_bytes(ops) * base.recorded.copies_like(ops, TO_DEVICE)
    places = np.flatnonzero(np.maximum(written, sent) >= _LARGE).tolist()
    return tuple(next(iter(tensors_in(base, place, place + 1)), ("", ())) for place in places)


@remembered
def flow_of(base: Baseline) -> Flow:
    """Return what the ops of a step read and write."""
    ops, recorded = base.ops, base.recorded
    reads = [_reads(base, place) for place in range(len(ops))]
    writes = [_writes(base, place, _soon(reads, place)) for place in range(len(ops))]
    free = which(ops.call, lambda call: call.startswith("aten::") and not _DRAWS.search(call) and call not in JOINS[1:])
    free &= ~which(ops.name, lambda name: bool(_DRAWS.search(name) or _OF_LISTS.match(name)))
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


def _soon(reads: list[list[Read]], place: int) -> list[Read]:
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
        width, words = given[0][1][-1:], [each for each in given[1:] if each[0] in _INTEGERS]
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
    weights = [weight for at in same if (weight := _weight(base, at))][:1]
    return bool(weights) and (len(given[0][1]) == 1 or sorted(given[0][1]) == sorted(weights[0]))


def _writes(base: Baseline, place: int, soon: list[Read]) -> Sizes:
    """Return the sizes that an op may write: if they are not known, those that are read soon, that its time is enough
    for, and that are of its type."""
    ops, cost = base.ops, base.ops.cost[place]
    given = tensors_in(base, place, place + 1)
    first = {size_of(*each) for each in given[:1]}
    copied = {int(each) for each in base.recorded.copied_bytes(ops[place : place + 1]) if each}
    if cost is not None:
        return copied | {int(cost.write_bytes)} | (first if cost.family == "norm" else set())
    most = _IN_CACHE * base.gpu.bandwidth * ops.kernel_ns[place] / 1e9
    kinds = _kinds_of_rows(ops.name[place], ops.call[place], given) or {kind for kind, _ in soon}
    made = {size for kind, size in soon if kind in kinds and size <= most}
    return copied | made | (first if ops.name[place].endswith("_") else set())


def _kinds_of_rows(name: str, call: str, given: Tensors) -> set[str]:
    """Return the types that an op writes which takes rows or makes indices; none for others."""
    makes = bool(_MAKES_INDICES.search(call))
    return {kind for kind, _ in given[:1] if makes or _TAKES_ROWS.match(name)} | ({"long int"} if makes else set())


def _rows_of_table(base: Baseline, flow: Flow, place: int, new: set[str]) -> Sizes:
    """Return the size of the items that an op of training takes from a table that no op writes, and that is no part of
    a tensor of these types: of sequences of numbers of words, or of items of several sides, as images. A table of
    vectors is one of weights."""
    ops, given = base.ops, tensors_in(base, place, place + 1)
    if not (given and _TAKES_ROWS.match(ops.name[place])):
        return set()
    (kind, table), whole = given[0], size_of(*given[0])
    fields = 2 if kind in _INTEGERS else 3
    if in_phase(ops, "backward")[place] or len(table) < fields or whole in flow.last:
        return set()
    if (kind, table[1:]) in flow.changed or (flow.viewed[place] and kind in new):
        return set()
    row = size_of(kind, table[1:])
    return {size for each, size in _soon(flow.reads, place) if each == kind and size % row == 0}


def _passes(base: Baseline, flow: Flow, items: dict[int, Sizes], stays: Callable[[Span], bool]) -> Iterator[Span]:
    """Yield the stretches of ops that read only what they made, or what no op has written before in the step but those
    that take items of a table, or in an earlier stretch."""
    known, heavy, start = _Known(Sizes(), set(), Sizes()), products(base.ops), 0
    while start < len(base.ops):
        end = _end(flow, start, known)
        if heavy[start:end].sum() >= _PRODUCTS and stays((start, end)):
            yield start, end
            start = end
        for place in range(start, min(max(end, start) + 1, len(base.ops))):
            known.items.update(items.get(place, ()))
            if place not in items:
                known.new.update(flow.writes[place])
                known.kinds.update(kind for kind, _ in tensors_in(base, place, place + 1)[:1])
                known.kinds.update({"long int"} if _MAKES_INDICES.search(base.ops.name[place]) else ())
        start = max(end, start) + 1


class _Known(NamedTuple):
    """What the ops of a step have written so far that may be other than in the last step, and its types; and the sizes
    of items of tables."""

    new: Sizes
    kinds: set[str]
    items: Sizes


def _end(flow: Flow, start: int, known: _Known) -> int:
    """Return the end of the stretch that begins here. What no op of it made may be a part of what is new, if it is of
    its type, and what a later op writes may come from the last step."""
    made, lies, end = Sizes(), list[tuple[int, int]](), start
    while end < len(flow.free) and flow.free[end]:
        unmade = [(kind, size) for kind, size in flow.reads[end] if size not in made]
        parts = {size for kind, size in unmade if flow.viewed[end] and kind in known.kinds}
        if parts or any(size in known.new for _, size in flow.reads[end]):
            known.new.update(parts)
            break
        lies += [(end, size) for _, size in unmade if size not in known.items]
        made |= flow.writes[end]
        end += 1
    while carried := [place for place, size in lies if place < end <= flow.last.get(size, -1)]:
        end = carried[0]
    while end > start and flow.casts[end - 1]:
        end -= 1
    return end


def _has_other_weights(base: Baseline, span: Span) -> bool:
    """Return whether a stretch is of no network that the step trains: its weights do not come in a row in the order of
    the backward pass, as those of a mean or an older state of the network do, nor most of those of the backward pass in
    its order, as adapters between frozen layers do."""
    trained = [sides_of(shape) for shape in reversed(weight_gradients(base).values())]
    weights = [sides_of(weight) for place in range(*span) if (weight := _weight(base, place))]
    known = [set(weights[:count]) == set(weights) for count in range(len(weights) + 1)].index(True)
    begins, rest = weights[:known], iter(weights)
    adapted = len(list(takewhile(lambda shape: shape in rest, trained)))
    in_a_row = any(trained[at : at + known] == begins for at in range(len(trained)))
    return bool(begins and trained) and not in_a_row and 2 * adapted <= len(trained)


def _is_of_other_items(base: Baseline, flow: Flow, new: set[tuple[int, ...]], span: Span) -> bool:
    """Return whether the input of a stretch is neither a part of a larger tensor, as of all that is encoded in turn,
    nor of as many items as what is new in the step, to which it may belong."""
    made, lies, items = Sizes(), dict[int, bool](), set[tuple[int, ...]]()
    for place in range(*span):
        lies |= {size: bool(flow.viewed[place]) for _, size in flow.reads[place] if size not in {*made, *lies}}
        made |= flow.writes[place]
        given = tensors_in(base, place, place + 1)
        items |= {shape[:1] for kind, shape in given if (kind, size_of(kind, shape)) in flow.reads[place]}
    return bool(lies) and not lies[max(lies)] and not items & new - {(1,)}


def _weight(base: Baseline, place: int) -> tuple[int, ...]:
    """Return the sides of the weight of a product or a convolution; () for others."""
    cost, given = base.ops.cost[place], tensors_in(base, place, place + 1)
    if cost is not None and cost.family == "convolution" and len(given) > 1:
        return given[1][1]
    return (work.k, work.n) if cost is not None and isinstance(work := cost.work, Product) and work.weight else ()
