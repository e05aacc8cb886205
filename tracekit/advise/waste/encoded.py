"""Detector of networks, and functions of matrices, of what lies on the device: one input, or items that come again."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.again import fits
from tracekit.advise.waste.factorizations import OF_LIBRARY, OF_MATRICES
from tracekit.advise.waste.finding import Finding, removed
from tracekit.advise.waste.flow import DRAWS, INTEGERS, MAKES_INDICES, TAKES_ROWS, Flow, Sizes, flow_of, soon, weight
from tracekit.advise.waste.frozen import sides_of, weight_gradients
from tracekit.advise.waste.repeats import Span, Tensors, inside, size_of, tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.predict import Baseline, OpList, in_phase, which

_PRODUCTS = 4
"""Fewest products of a network."""
_MATRIX = 2
"""Dimensions of one matrix."""
_LARGE = 1 << 16
"""Fewest bytes of an input that a step gets; less are numbers that the host chooses."""


def encoded_each_step(base: Baseline) -> Finding | None:
    """Find passes of networks without a gradient over what lies on the device and no op of the step writes, beside what
    is new in it; in training, over the rows that a step takes from a table that stays, too, which come again in each
    epoch, or functions of matrices that are rows of it. A network that the step trains, as its order of weights shows,
    encodes them differently each time."""
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
    way = "matrices-of-items" if which(ops.call[rows], OF_MATRICES.match).any() else "encoded-each-step"
    return Finding(rows, removed(rows), len(found), way=way) if found and beside else None


def _kept(base: Baseline, flow: Flow, span: Span, items: dict[int, Sizes]) -> float:
    """Return the bytes of what a stretch makes, of all items of the tables of which a step takes some."""
    batches = [size_of(*tensors_in(base, place, place + 1)[0]) / max(sizes) for place, sizes in items.items()]
    return max(flow.writes[span[1] - 1], default=0) * max([1.0, *batches])


def _new_in(base: Baseline) -> Tensors:
    """Return the type and shape of each large tensor that comes from the host in the step, or is drawn."""
    ops = base.ops
    drawn = which(ops.name, DRAWS.search)
    written = np.array([cost.write_bytes if cost is not None else 0 for cost in ops.cost]) * drawn
    sent = base.recorded.copied_bytes(ops) * base.recorded.copies_like(ops, TO_DEVICE)
    places = np.flatnonzero(np.maximum(written, sent) >= _LARGE).tolist()
    return tuple(next(iter(tensors_in(base, place, place + 1)), ("", ())) for place in places)


def _rows_of_table(base: Baseline, flow: Flow, place: int, new: set[str]) -> Sizes:
    """Return the size of the items that an op of training takes from a table that no op writes, and that is no part of
    a tensor of these types: of sequences of numbers of words, or of items of several sides, as images. A table of
    vectors is one of weights."""
    ops, given = base.ops, tensors_in(base, place, place + 1)
    if not (given and TAKES_ROWS.match(ops.name[place])):
        return set()
    (kind, table), whole = given[0], size_of(*given[0])
    fields = 2 if kind in INTEGERS else 3
    if in_phase(ops, "backward")[place] or len(table) < fields or _is_written(base, flow, table, whole):
        return set()
    if (kind, table[1:]) in flow.changed or (flow.viewed[place] and kind in new):
        return set()
    row = size_of(kind, table[1:])
    return {size for each, size in soon(flow.reads, place) if each == kind and size % row == 0}


def _is_written(base: Baseline, flow: Flow, table: tuple[int, ...], whole: int) -> bool:
    """Return whether an op may write such a table; one that takes rows of another makes rows that are as wide."""
    for place in [place for place, sizes in enumerate(flow.writes) if whole in sizes]:
        source = tensors_in(base, place, place + 1)[:1]
        takes = base.ops.cost[place] is None and TAKES_ROWS.match(base.ops.name[place]) and source
        if not (takes and source[0][1][-1:] != table[-1:]):
            return True
    return False


def _passes(base: Baseline, flow: Flow, items: dict[int, Sizes], stays: Callable[[Span], bool]) -> Iterator[Span]:
    """Yield the stretches of ops that read only what they made, or what no op has written before in the step but those
    that take items of a table, or in an earlier stretch."""
    known, heavy, start = _Known(Sizes(), set(), Sizes()), products(base.ops), 0
    while start < len(base.ops):
        end = _end(flow, start, known)
        network = heavy[start:end].sum() >= _PRODUCTS and stays((start, end))
        if network or _is_of_matrices(base, flow, (start, end), known.items):
            end = end if network else _end_of_call(base.ops, end)
            yield start, end
            start = end
        for place in range(start, min(max(end, start) + 1, len(base.ops))):
            known.items.update(items.get(place, ()))
            if place not in items:
                known.new.update(flow.writes[place])
                known.kinds.update(kind for kind, _ in tensors_in(base, place, place + 1)[:1])
                known.kinds.update({"long int"} if MAKES_INDICES.search(base.ops.name[place]) else ())
        start = max(end, start) + 1


def _is_of_matrices(base: Baseline, flow: Flow, span: Span, items: Sizes) -> bool:
    """Return whether a stretch reads items, and has a function of as many matrices, but no weights, which training
    changes."""
    places = range(*span)
    weights = any(weight(base, place) for place in places)
    read = any(size in items for place in places for _, size in flow.reads[place])
    called = [place for place in places if OF_MATRICES.match(base.ops.call[place])]
    several = any(len(shape) > _MATRIX for place in called for _, shape in tensors_in(base, place, place + 1))
    return read and several and not weights


def _end_of_call(ops: OpList, end: int) -> int:
    """Return where the call of a library that ends a stretch is over, with the check for which the host waits."""
    while end < len(ops) and ops.call[end] == ops.call[end - 1] and OF_LIBRARY.match(ops.call[end]):
        end += 1
    return end


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
    weights = [sides_of(sides) for place in range(*span) if (sides := weight(base, place))]
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
