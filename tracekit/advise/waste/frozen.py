"""Detector of a backward pass that goes on behind the last gradient that the optimizer uses, into frozen layers."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened, longest, removed
from tracekit.advise.waste.gradients import ACCUMULATES, added_to_older, backward_again
from tracekit.advise.waste.repeats import size_of, spans_of, tensors_in
from tracekit.advise.waste.unreset import OF_WEIGHTS, fills_zeros, one_update_a_pass, unreset_gradients, without
from tracekit.analyzers.cost import Product, Recurrent
from tracekit.analyzers.predict import Baseline, Rows, in_phase, which

Shape = tuple[int, ...]

_ADDS = ("aten::add", "aten::add_")
MULTIPLIES = re.compile(r"mm$|convolution")
_FILL = "aten::fill_"
_OTHERS = 4
"""Fewest gradients of weights that no optimizer updates."""
_OF_A_NORM = 2
"""Gradients that the backward op of a normalization computes: of its weight and its bias."""


def backward_of_frozen(base: Baseline) -> Finding | None:
    """Find the ops of each backward pass behind all gradients that the optimizer uses, unless a later pass goes through
    the same graph; or gradients of weights that it does not have, if they take more."""
    if not weight_gradients(base):
        return unreset_gradients(base)
    ops, rows, again, unused = base.ops, np.zeros(len(base.ops), dtype=bool), backward_again(base), 0
    trained = _trained(base)
    kept = _kept(base, trained)
    passes = spans_of(in_phase(ops, "backward"))
    for begin, end in passes:
        last = _after_trained(base, begin, end, trained) if trained else _after_fresh(base, begin, end)
        behind = np.arange(last, end)[~again.rows[last:end] if again else slice(None)]
        if weights := sum(bool(_weight(base, place)) for place in behind.tolist()) or int(kept[behind].sum()):
            rows[behind], unused = True, unused + weights
    way = "passes" if any(not rows[begin:end].any() for begin, end in passes) else ""
    found = [Finding(rows, removed(rows), unused, way=way) if unused else None, _of_others(base, trained)]
    return longest(found, ops.kernel_ns)


def weight_gradients(base: Baseline) -> dict[int, Shape]:
    """Return the place and the shape of each gradient of a weight that the backward pass computes."""
    places = np.flatnonzero(in_phase(base.ops, "backward")).tolist()
    return {place: shape for place in places if (shape := _weight(base, place))}


def _kept(base: Baseline, trained: "Counter[Shape]") -> Rows:
    """Select the gradients of embeddings, and those that are added to older ones, that no product computes and the
    optimizer does not have. Where it is not known what it has, each pass precedes an update, and they are added."""
    rows, computed = np.zeros(len(base.ops), dtype=bool), weight_gradients(base).values()
    known = {sides_of(shape) for shape in (*trained, *computed)}
    if trained or one_update_a_pass(base.ops):
        last = {shape: place for place, shape in (*(_tables(base) if trained else ()), *_accumulated(base))}
        rows[[place for shape, place in last.items() if sides_of(shape) not in known]] = True
    return rows


_OF_EMBEDDINGS = re.compile(r"Embedding\w*Backward")


def _tables(base: Baseline) -> list[tuple[int, Shape]]:
    """Return the place and the shape of each gradient of a table of embeddings, which is filled with zeros first."""
    fills = np.flatnonzero((base.ops.name == _FILL) & which(base.ops.call, _OF_EMBEDDINGS.search)).tolist()
    given = ((place, shape) for place in fills for _, shape in tensors_in(base, place, place + 1)[:1])
    return [(place, shape) for place, shape in given if len(shape) == 2]


def _of_others(base: Baseline, trained: "Counter[Shape]") -> Finding | None:
    """Find gradients of weights that are added to older ones, and of shapes that the optimizer does not update, as of a
    teacher, or of a network whose features a loss compares. Those of convolutions come with their input's. Of a shape
    that it updates, too, they are those before the last that is added, if as many come later as it updates. Where it
    is not known what it updates, all that it updates are reset."""
    ops = base.ops
    added = {sides_of(shape): place for place, shape in _accumulated(base)}  # in order: the last one stays
    if not added:
        return None
    of = {place: sides_of(shape) for place, shape in weight_gradients(base).items()}
    known = Counter(sides_of(shape) for shape in trained.elements()) if trained else _reset(base, of, added)
    older = added.keys() - known.keys()
    later = Counter(shape for place, shape in of.items() if place > added.get(shape, place))
    others = [place for place, shape in of.items() if place < added.get(shape, -1) and later[shape] >= known[shape]]
    made = sorted({*others, *(place for place, shape in of.items() if shape in older)})
    mixed = np.zeros(len(ops), dtype=bool)
    mixed[[place for place in made if not isinstance(getattr(ops.cost[place], "work", None), Product)]] = True
    alone = np.zeros(len(ops), dtype=bool)
    alone[made] = ~mixed[made]
    alone |= in_phase(ops, "backward") & which(ops.name, _MOVES.__contains__) & _first_in(base, older)
    nodes = base.recorded.nodes_of(ops)
    alone |= (ops.name == "aten::sum") & (nodes >= 0) & np.isin(nodes, nodes[made])
    for begin, end in _nowhere(base, made):
        alone[begin:end], mixed[begin:end] = True, False
    some = lessened(mixed, OF_WEIGHTS)
    change = partial(without, alone, some)
    return Finding(alone | mixed, change, len(made)) if len(made) >= _OTHERS else None


def _reset(base: Baseline, of: dict[int, Shape], added: dict[Shape, int]) -> "Counter[Shape]":
    """Return how many gradients of each shape may be reset before each update, from the ops that compute one: where one
    pass precedes each update and no op fills zeros, those after the last that is added to an older one, if some are.
    Each of the others must be added itself, or in a sum with others; else it may be one that is reset."""
    computed = Counter(shape for shape in of.values() if shape)
    later = Counter(shape for place, shape in of.items() if shape and place > added.get(shape, -1))
    passes, updates = (len(spans_of(in_phase(base.ops, phase))) for phase in ("backward", "optimizer"))
    adds = np.flatnonzero(in_phase(base.ops, "backward") & np.isin(base.ops.name, _ADDS)).tolist()
    sums = Counter(sides_of(shape) for at in adds for _, shape in tensors_in(base, at, at + 1)[:1])
    if fills_zeros(base.ops) or passes != updates or not later:
        sums.clear()
    return +Counter({s: later[s] if computed[s] - later[s] == sums[s] else computed[s] + 1 for s in added})


_SHORTER = 0.75
"""Time of a convolution's backward pass without the gradient of its input, relative to that of one with it."""


def _nowhere(base: Baseline, made: list[int]) -> list[tuple[int, int]]:
    """Return the passes through a network without trained weights that end without a gradient of its input, as that of
    a loss does for its target: they take less time at the end than the pass that goes on."""
    passes = _parted([_weight(base, place) for place in made])
    ends = [float(base.ops.kernel_ns[made[part[-1]]]) for part in passes]
    short = [part for part, end in zip(passes, ends, strict=True) if end < _SHORTER * max(ends)]
    return [(made[part[0]], made[part[-1]] + 1) for part in short]


def _parted(weights: list[Shape]) -> list[range]:
    """Return the places of equal parts of which the weights consist, or of ends of the longest part, as of losses that
    compare features of several layers; one part of all if they do not."""
    count = len(weights)
    sizes = (size for size in range(1, count) if count % size == 0 and weights == weights[:size] * (count // size))
    if size := next(sizes, 0):
        return [range(begin, begin + size) for begin in range(0, count, size)]
    after_first = [at + 1 for at, weight in enumerate(weights) if weight == weights[-1]]
    parts = [range(*ends) for ends in pairwise([0, *after_first])]
    longest_part = [weights[at] for at in max(parts, key=len, default=range(0))]
    are_ends = all([weights[at] for at in part] == longest_part[-len(part) :] for part in parts)
    return parts if are_ends else [range(count)]


_MOVES = (*_ADDS, "aten::copy_")


def _first_in(base: Baseline, shapes: set[Shape]) -> Rows:
    """Select the ops whose first tensor has one of these shapes, whether transposed or not."""
    first = [tensors_in(base, place, place + 1)[:1] for place in range(len(base.ops))]
    return np.array([any(sides_of(shape) in shapes for _, shape in each) for each in first], dtype=bool)


def _accumulated(base: Baseline) -> list[tuple[int, Shape]]:
    """Return the place and the shape of each gradient that is added to an older one."""
    adds = np.flatnonzero(added_to_older(base.ops)).tolist()
    return [(place, shape) for place in adds for _, shape in tensors_in(base, place, place + 1)[:1]]


def _trained(base: Baseline) -> "Counter[Shape]":
    """Return how many tensors of each shape the optimizer updates, by an op that each of them has; empty: unknown, as
    for long lists of tensors, whose shapes the profiler drops."""
    counts: dict[str, Counter[Shape]] = {}
    for place in np.flatnonzero(in_phase(base.ops, "optimizer")).tolist():
        given = base.recorded.inputs_of(base.ops[place : place + 1])[0]
        if _is_dropped(given):
            return Counter()
        counts.setdefault(base.ops.name[place], Counter()).update(_updated(given))
    every = {shape for each in counts.values() for shape in each}
    whole = [each for each in counts.values() if set(each) == every]
    return min(whole, key=Counter.total, default=Counter())


def _is_dropped(given: tuple[str, str] | None) -> bool:
    return given is not None and given[0].startswith("[[],") and given[1].startswith('["TensorList"')


def _updated(given: tuple[str, str] | None) -> Iterator[Shape]:
    """Yield the shapes of the tensors, or of the first list of them, that an op of the optimizer is given."""
    first = next(iter(json.loads(given[0])), ()) if given else ()
    for dims in first if first and all(isinstance(each, list) for each in first) else [first]:
        if dims and all(type(side) is int for side in dims):
            yield tuple(dims)


def _after_trained(base: Baseline, begin: int, end: int, trained: "Counter[Shape]") -> int:
    """Return the place after the last gradient of a trained tensor; the end if it is not known. Gradients of matrices
    are known by their shapes, or are parts of packed ones; of other tensors, they are counted. A matrix that is used
    several times, as that of a recurrent cell, has several gradients, which are added up. One op computes those of all
    weights of recurrent layers."""
    matrices = Counter(
        {sides_of(shape): count for shape, count in trained.items() if len(shape) > 1 and 1 not in shape}
    )
    others = {shape for shape in trained if sides_of(shape) not in matrices}
    vectors = sum(trained[shape] for shape in others)
    rows_left = {shape: shape[-1] * count for shape, count in matrices.items()}
    for place in range(begin, end):
        of_layers = _of_recurrent(base, place)
        for weight in filter(None, [_weight(base, place), *(shape for shape in of_layers if len(shape) > 1)]):
            _take(rows_left, sides_of(weight))
        vectors -= _vectors(base, place, others) + sum(len(shape) == 1 for shape in of_layers)
        if vectors <= 0 and not any(rows_left.values()):
            return max(place + 1, _after_summed(base, begin, end, set(matrices)))
    return end


def _after_summed(base: Baseline, begin: int, end: int, trained: set[Shape]) -> int:
    """Return the place after the last gradient that the backward pass adds to others of the same trained matrix."""
    adds = np.isin(base.ops.name[begin:end], _ADDS) & (base.ops.call[begin:end] != ACCUMULATES)
    given = [tensors_in(base, place, place + 1)[:1] for place in (begin + np.flatnonzero(adds)).tolist()]
    summed = trained & {sides_of(shape) for each in given for _, shape in each}
    return max((place + 1 for place in range(begin, end) if sides_of(_weight(base, place)) in summed), default=begin)


def sides_of(shape: Shape) -> Shape:
    """Return the sides of a weight that do not depend on whether it is transposed, the longer one last."""
    return (*shape[2:], *sorted(shape[:2]))


def _take(rows_left: dict[Shape, int], weight: Shape) -> None:
    """Take the gradient of a matrix, or of a part of a packed one, from those that are still to come."""
    packed = (shape for shape in rows_left if len(shape) == len(weight) == 2 and shape[0] in weight)
    for shape in (weight, *packed):
        rows = weight[-1] if shape == weight else math.prod(weight) // shape[0]
        if rows_left.get(shape, 0) >= rows:
            rows_left[shape] -= rows
            return


def _weight(base: Baseline, place: int) -> Shape:
    """Return the shape of the weight whose gradient an op computes; () for others."""
    cost = base.ops.cost[place]
    if cost is None:
        return ()
    if isinstance(work := cost.work, Product):
        return (work.m, work.n) if work.gradient else ()
    shapes = [shape for _, shape in tensors_in(base, place, place + 1)]
    of_convolution = cost.family == "convolution" and len(shapes) > 2
    return shapes[2] if of_convolution else ()


def _of_recurrent(base: Baseline, place: int) -> list[Shape]:
    """Return the shapes of the weights of recurrent layers whose gradients an op computes: cuDNN sums them up in memory
    that the op before fills with zeros, unlike those of the input."""
    sums = isinstance(getattr(base.ops.cost[place], "work", None), Recurrent) and base.ops.name[place - 1] == _FILL
    given = base.recorded.inputs_of(base.ops[place : place + 1])[0] if sums else None
    weights = json.loads(given[0])[1:2] if given else []
    return [tuple(dims) for each in weights for dims in each if isinstance(dims, list) and dims]


def _vectors(base: Baseline, place: int, trained: set[Shape]) -> int:
    """Return how many gradients of biases and weights of normalizations an op may compute. What it sums up has all
    sides of one that is trained, and the sum as many numbers: the sums of frozen layers are no gradients of an image,
    even of one as large as theirs."""
    name, given = base.ops.name[place], tensors_in(base, place, place + 1)[:1]
    has = Counter(side for _, shape in given for side in shape)
    fit = [shape for shape in trained if Counter(side for side in shape if side > 1) <= has]
    cost = base.ops.cost[place]
    if given and name == "aten::sum" and cost is not None:
        fit = [shape for shape in fit if size_of(given[0][0], shape) == cost.write_bytes]
    if given and not fit:
        return 0
    return _OF_A_NORM if "norm_backward" in name else int(name == "aten::sum")


def _after_fresh(base: Baseline, begin: int, end: int) -> int:
    """Return the place after the last gradient that is not added to an older one, if no gradient is filled with zeros:
    the others are of weights whose gradients nothing resets, as an optimizer does. The end if none is like that."""
    if fills_zeros(base.ops) or not in_phase(base.ops, "optimizer").any():
        return end
    older = Counter(sides_of(shape) for place, shape in _accumulated(base) if begin <= place < end)
    made = {place: sides_of(shape) for place in range(begin, end) if (shape := _weight(base, place))}
    computed = Counter(made.values())
    fresh = [place for place, shape in made.items() if older[shape] < computed[shape]]
    return max(fresh) + 1 if fresh and older else end
