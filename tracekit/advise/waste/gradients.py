"""Detectors of backward passes that a program runs too often: for each example, or twice through one graph."""

import math
import re
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.as_one import for_all, repeated_in
from tracekit.advise.waste.finding import Finding, lessened, removed
from tracekit.advise.waste.items import products_of_layers
from tracekit.advise.waste.repeats import Span, spans_of, tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import Ints, Outcomes, outcomes
from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, remembered, which

_ITEMS = 8
"""Fewest examples of a step."""
_ALIKE = 0.8
"""Fraction of the passes that call the same ops."""
ACCUMULATES = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
_SUMS = ("aten::add", "aten::add_")
_CHANGES = re.compile(r"^aten::(?!fill_|zero_|copy_|relu_|clamp_min_|add_|(?:_foreach_)?addcmul_)\w*_$")
"""Ops that change a tensor in place, as an update of weights does; those of layers, and sums of squares, excepted."""
_SQUARES, _SCALES = ("aten::pow", "aten::square", "aten::_foreach_pow"), ("aten::div", "aten::mul")
"""Ops whose result is added, perhaps scaled, to an estimate of the gradients' squares, not to weights."""
_UPDATES = re.compile(r"^aten::(?:sub|add)_?$")
_CONVOLVES = re.compile(r"^aten::conv\w*$")
_KNOWN = outcomes(__file__)


def gradients_one_by_one(base: Baseline) -> Finding | None:
    """Find gradients of examples, or rows of a Jacobian, that a program computes one by one."""
    return gradients_for_items(base) or rows_of_a_jacobian(base)


def gradients_for_items(base: Baseline) -> Finding | None:
    """Find forward and backward passes for one example after another, whose gradients are neither added up nor used
    before the next one. Attacks need gradients of their inputs, and each pass of them reads what the last one wrote."""
    ops, back = base.ops, in_phase(base.ops, "backward")
    begins = np.flatnonzero(back & ~np.append(False, back[:-1]))
    passes = [np.arange(*ends) for ends in pairwise(begins)]
    if len(passes) < _ITEMS or _updates(base, passes[len(passes) // 2]) or not _of_weights(ops, begins):
        return None
    usual = ops.name[passes[len(passes) // 2]].tolist()
    if sum(ops.name[each].tolist() == usual for each in passes) < _ALIKE * len(passes):
        return None
    items, places = len(begins), np.arange(len(ops))
    rows = (places >= begins[0] - len(usual)) & (places < begins[-1] + len(usual)) & repeated_in(ops, items)
    return Finding(rows, for_all(ops, rows, items, _KNOWN["mapped"]), items)


_PICKS = re.compile(r"^aten::(?:sum|select|index|fill_|zero_|ones_like|zeros_like|copy_|cat|stack|_index_put_impl_)$")
"""Ops that pick the next number to differentiate, and keep the row of its gradient."""
_BETWEEN = 4
"""Most such ops between two passes."""


def rows_of_a_jacobian(base: Baseline) -> Finding | None:
    """Find many small backward passes through one graph, between which the program picks the number that the next one
    begins with, and whose gradients are not added up: each is a row. A solver's next product, as of a Hessian and a
    vector, follows from the last one."""
    ops, passes = base.ops, spans_of(in_phase(base.ops, "backward"))
    rows, items = np.zeros(len(ops), dtype=bool), 0
    for first, last in spans_of(np.array([_is_next_row(base, *pair) for pair in pairwise(passes)], dtype=bool)):
        if last - first + 1 >= _ITEMS:
            rows[passes[first][0] : passes[last][1]], items = True, max(items, last - first + 1)
    if not rows.any() or ops.kernel_ns[rows].sum() > ops.host_ns[rows].sum():
        return None
    return Finding(rows, for_all(ops, rows, items, _KNOWN["mapped"]), items, way="rows-of-a-jacobian")


def _is_next_row(base: Baseline, one: Span, other: Span) -> bool:
    ops, node, passed = base.ops, base.recorded.nodes_of(base.ops), slice(*one)
    between = ops.name[one[1] : other[0]]
    same = min(node[passed]) == min(node[slice(*other)]) >= 0
    kept = added_to_older(ops[passed]) | base.recorded.for_gradients(ops[passed])
    return bool(same and len(between) <= _BETWEEN and which(between, _PICKS.match).all() and not kept.any())


_IDENTITY, _DIAGONAL = ("aten::new_zeros", "aten::zeros", "aten::eye"), "aten::fill_"
_TALL = 16
"""Rows of a Jacobian for each of its columns from which forward mode computes it in fewer passes."""


def tall_jacobian(base: Baseline) -> Finding | None:
    """Find the backward pass for all rows of a Jacobian at once, which begins with a written identity, if the gradients
    that it ends with have far fewer numbers a row: forward mode makes one pass a column, in the host time of vmap."""
    ops, rows, few = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0
    for begin, end in spans_of(in_phase(ops, "backward")):
        size, ends = _identity_before(base, begin), tensors_in(base, end - 1, end)
        columns = max((math.prod(shape) / size for _, shape in ends), default=0.0) if size else 0.0
        if 1 <= columns * _TALL <= size:
            rows[begin:end], few = True, max(few, columns / size)
    if not rows.any():
        return None
    change = lessened(rows, Outcomes(few, few, few), _KNOWN["tangents"])
    return Finding(rows, change, int(rows.sum()), sure=("allocation",), way="tall-jacobian")  # of what is that large


_BY_NUMBER = ("pointwise", "copy")
_PARTS = ("aten::cat", "aten::stack")


def jacobian_across_a_batch(base: Baseline) -> Finding | None:
    """Find the backward pass for all rows of a Jacobian of a whole batch, each through all points of it, although no op
    of the pass mixes points: a point depends on itself only, and all other blocks are zero. The rows of one point, for
    all at once, are fewer by the number of points. What vmap runs row after row is then one op, which takes
    no rows apart on the host."""
    ops, most = base.ops, 0
    rows, kept = np.zeros(len(ops), dtype=bool), np.ones(len(ops), dtype=bool)
    for begin, end in spans_of(in_phase(ops, "backward")):
        if (points := _points(base, begin, end, _identity_before(base, begin))) >= _ITEMS:
            rows[begin - 2 : end], most = True, max(most, points)
            names = ops.name[begin:end] + ops.call[begin:end]
            kept[begin + 1 : end] = names[1:] != names[:-1]
    if not most:
        return None
    shorter = lessened(rows, Outcomes(1 / most, 1 / most, 1 / most), _KNOWN["tangents"])

    def change(run: Baseline, outcome: Outcome) -> OpList:
        after = shorter(run, outcome)
        host = np.where(rows, np.minimum(after.host_ns, np.median(after.host_ns[rows])), after.host_ns)
        sums = np.add.reduceat(after.kernel_ns, np.flatnonzero(kept))
        return after.assign(host_ns=host)[kept].assign(kernel_ns=sums)

    return Finding(rows, change, most, sure=("allocation",), way="jacobian-across-a-batch")


def _points(base: Baseline, begin: int, end: int, size: int) -> int:
    """Return the points of a batch that a pass for so many rows of a Jacobian goes through, if it multiplies each point
    by weights, and does the rest number by number; 0 if it may mix points."""
    if not size:
        return 0
    costs, names = base.ops.cost[begin:end], base.ops.name[begin:end]
    works = [cost.work for cost in costs if cost is not None and isinstance(cost.work, Product)]
    rows = {(work.groups, work.m) for work in works}
    known = [_by_number(cost, name) for cost, name in zip(costs, names, strict=True)]
    if {group for group, _ in rows} != {1} or len(rows) != 1 or not all(known):
        return 0
    points, rest = divmod(rows.pop()[1], size)
    return points if not rest and size % max(points, 1) == 0 else 0


def _by_number(cost: Cost | None, name: str) -> bool:
    if cost is None:
        return name in _PARTS
    return cost.family in _BY_NUMBER or isinstance(cost.work, Product)


def _identity_before(base: Baseline, begin: int) -> int:
    """Return the rows of the identity that a program writes right before this op; 0 if it writes none."""
    made = [tensors_in(base, place, place + 1)[:1] for place in range(max(begin - 2, 0), begin)]
    named = begin >= 2 and base.ops.call[begin - 2] in _IDENTITY and base.ops.name[begin - 1] == _DIAGONAL
    if not named or not all(made):
        return 0
    (whole,), (diagonal,) = (tuple(shape for _, shape in each) for each in made)
    return diagonal[0] if len(diagonal) == 1 and whole == diagonal * 2 else 0


def _of_weights(ops: OpList, begins: Ints) -> bool:
    """Return whether each layer but the first of a pass has a gradient of its input, and each one of its weights. A
    pass for the gradient of an input has one for each layer. How many a convolution has is not known: where one comes
    first, the program reads those of all weights before the next pass."""
    (layers, gradients), items = products_of_layers(ops), len(begins)
    if _begins_by_convolution(ops[begins[0] : begins[1]]):
        return 2 * layers - gradients <= (1 - _ALIKE) * items and _reads_many(ops[begins[0] : begins[1]])
    return bool(_ALIKE * items <= 2 * layers - gradients <= items / _ALIKE and gradients > layers + _ALIKE * items / 2)


def _begins_by_convolution(one: OpList) -> bool:
    calls = one.call[products(one) & in_phase(one, "forward")]
    return len(calls) > 0 and bool(_CONVOLVES.match(calls[0]))


def _reads_many(one: OpList) -> bool:
    """Return whether lists of tensors, or two for each layer, are read between a pass and the next one's layers."""
    back, layers = in_phase(one, "backward"), products(one) & in_phase(one, "forward")
    between = one.name[int(back.sum()) : int(np.flatnonzero(layers)[0])]
    lists = which(between, lambda name: "_foreach_" in name).any()
    return bool(lists or len(between) >= 2 * layers.sum())


def _updates(base: Baseline, one: Ints) -> bool:
    """Return whether a pass may use its gradients before the next one: it adds them up, changes tensors in place, or
    subtracts or adds as many as there are layers. Sums of their squares are no gradients."""
    ops, back = base.ops, in_phase(base.ops[one], "backward")
    names, calls = ops.name[one][~back], ops.call[one]
    names = names[~_sums_of_squares(base, one[~back])]
    layers = int(products(ops[one][~back]).sum())
    sums = int(which(names, _UPDATES.match).sum())
    optimizes = in_phase(ops[one], "optimizer").any() or which(names, _CHANGES.match).any()
    return bool((calls == ACCUMULATES).any() or optimizes or sums >= max(layers, 1))


def _sums_of_squares(base: Baseline, places: Ints) -> Rows:
    """Select the ops that add to a tensor what the op before them, or the one before its scale, squared, or multiplied
    by a tensor as large."""
    names = base.ops.name[places]
    squares, scales = (which(names, each.__contains__) for each in (_SQUARES, _SCALES))
    squares |= [name == "aten::mul" and _of_two(base, place) for name, place in zip(names, places, strict=True)]
    scaled = scales & np.append(False, squares[:-1])
    adds = which(names, lambda name: name.endswith(("add", "add_")))
    return np.asarray(adds & np.append(False, (squares | scaled)[:-1]))


def _of_two(base: Baseline, place: int) -> bool:
    """Return whether an op reads two tensors of one shape, where shapes were recorded."""
    given = tensors_in(base, place, place + 1)
    return len(given) == 2 and given[0] == given[1]


def added_to_older(ops: OpList) -> Rows:
    """Select the ops that add a gradient to that of an earlier pass or step."""
    return np.asarray((ops.call == ACCUMULATES) & which(ops.name, _SUMS.__contains__))


_LOSSES = 4
"""Most backward passes through one graph, if none of them adds its gradients to those of another."""


@remembered
def backward_again(base: Baseline) -> Finding | None:
    """Find backward passes through nodes of autograd's graph that another one of the step passes through later, whose
    gradients are added up or dropped. Gradients of gradients need the first pass, whose ops autograd records, too."""
    ops, node = base.ops, base.recorded.nodes_of(base.ops)
    starts = np.flatnonzero(np.diff(node, prepend=-2))
    nodes, of, times = np.unique(node[starts], return_inverse=True, return_counts=True)
    most = int(times[nodes >= 0].max(initial=0))
    if not base.trains or most < 2 or (most > _LOSSES and not added_to_older(ops).any()):
        return None
    last = np.zeros(len(nodes), dtype=np.int64)
    last[of] = starts  # in order: the last one stays
    earlier = (node[starts] >= 0) & (starts < last[of])
    rows = np.repeat(earlier, np.diff(starts, append=len(ops)))
    if base.recorded.for_gradients(ops)[rows].any():
        return None
    return Finding(rows, removed(rows), most)
