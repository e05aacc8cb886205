"""Detectors of work that is done again although its inputs stay: the order of a graph's edges, functions of weights,
large tensors that follow from small ones, and products of rows that were there before."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tracekit.advise.waste.each_round import encoded_each_round
from tracekit.advise.waste.edges import sorted_edges
from tracekit.advise.waste.encoded import encoded_each_step
from tracekit.advise.waste.equal_rows import equal_rows, layers_of_pairs
from tracekit.advise.waste.factorizations import factorized_again
from tracekit.advise.waste.finding import Finding, longest
from tracekit.advise.waste.gathered import networks_on_gathered_rows, rows_repeated_before
from tracekit.advise.waste.repeats import (
    Span,
    Tensors,
    codes_of,
    extended,
    inside,
    lengthened,
    of_sizes,
    repeated,
    size_of,
    tensors_in,
)
from tracekit.advise.waste.rounds import products
from tracekit.advise.waste.same_each_step import (
    encoded_each_draw,
    encoded_each_epoch,
    factorized_each_step,
    same_in_each_step,
)
from tracekit.advise.waste.views import work_on_repeated_rows
from tracekit.advise.waste.windows import windows_encoded_again
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import Ints
from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, where, which


def done_again(base: Baseline) -> Finding | None:
    """Find the kind of such work that takes most time."""
    within = [_without(*find(base), _name(find)) for find in (sorted_edges, _made_large)]
    same = (same_in_each_step, encoded_each_epoch, encoded_each_draw, encoded_each_round)
    factors = (factorized_again, factorized_each_step)
    alone = ((find, find(base)) for find in (*same, *factors, _functions_of_weights, _rows_of_before, _propagated))
    whole = [_without(rows, rows, _name(find)) for find, rows in alone]
    gathered = (rows_repeated_before, networks_on_gathered_rows, work_on_repeated_rows)
    rows = (encoded_each_step, windows_encoded_again, *gathered, equal_rows, layers_of_pairs)
    found = [each for each in (*within, *whole, *(find(base) for find in rows)) if each is not None]
    spent = base.ops.kernel_ns + base.ops.host_ns
    return longest(found, spent)


def _name(detector: Callable[..., Any]) -> str:
    return detector.__name__.removeprefix("_")


def _without(again: Rows, all_of_it: Rows, way: str) -> Finding | None:
    """Return the finding that these ops disappear, at best all that each step makes alike; None if there are none."""
    if not again.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return run.ops[~(all_of_it if outcome == "best" else again)]

    return Finding(again, change, int(again.sum()), way=way)


_OF_MATRICES = re.compile(r"^aten::(?:linalg_\w+|matrix_exp|inverse|cholesky\w*)$")


def _functions_of_weights(base: Baseline) -> Rows:
    """Select functions of matrices that are computed again in a pass of training from one weight, as autograd shows,
    which adds one gradient less than there are uses; in inference, weights that are normalized in each pass."""
    ops = base.ops
    if not base.trains:
        return which(ops.call, lambda call: call.startswith("aten::_weight_norm"))
    again = np.zeros(len(ops), dtype=bool)
    for spans in repeated(base, _OF_MATRICES):
        sizes = {math.prod(shape) for _, shape in tensors_in(base, *spans[0])}
        stretches = extended(base, spans, partial(of_sizes, sizes), after=True)
        names, passes = set(ops.name[slice(*stretches[0])]), in_phase(ops, "backward")[spans[0][0] : spans[-1][1]]
        if not passes.any() and _added_gradients(ops, names, len(spans)):
            again |= inside(ops, stretches[1:]) | _backward_of(base, sizes, len(spans))
    return again


def _added_gradients(ops: OpList, names: set[str], uses: int) -> bool:
    """Return whether autograd adds the gradients of so many uses of one tensor behind one of these ops."""
    backward = {name.removeprefix("aten::").replace("_", "") + "backward" for name in names}
    adds = in_phase(ops, "backward") & which(ops.name, lambda name: name in ("aten::add_", "aten::add"))
    counts = Counter(call.rpartition(" ")[2].rstrip("0123456789").lower() for call in ops.call[adds])
    return any(counts[name] == uses - 1 for name in backward)


def _backward_of(base: Baseline, sizes: set[int], uses: int) -> Rows:
    """Select the ops of the backward pass on tensors of these sizes alone, but for those of one use."""
    ops, codes = base.ops, codes_of(base)
    again = np.zeros(len(ops), dtype=bool)
    for code in np.unique(codes[in_phase(ops, "backward")]).tolist():
        places = np.flatnonzero((codes == code) & in_phase(ops, "backward"))
        tensors = tensors_in(base, int(places[0]), int(places[0]) + 1)
        if len(places) >= uses - 1 and tensors and of_sizes(sizes, tensors):
            again[places[math.ceil(len(places) / uses) :]] = True
    return again


_LARGER = 16
"""Times that a tensor is as large as all from which it follows."""
_NOTABLE_BYTES = 1 << 20


def _made_large(base: Baseline) -> tuple[Rows, Rows]:
    """Select large tensors that inference makes again of the same small ones, which nothing writes in between, without
    and with the first time."""
    ops = base.ops
    again, all_of_it = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    codes, spreads = codes_of(base), where(ops, _is_spread) & (not base.trains)
    for code in np.unique(codes[spreads]).tolist():
        places = np.flatnonzero(codes == code)
        spans = [(place, place + 1) for place in places.tolist()]
        if len(spans) > 1 and not again[places].any() and not (_written(base, spans) or _are_parts(base, spans)):
            stretches = _grown(base, spans)
            again |= inside(ops, stretches[1:])
            all_of_it |= inside(ops, stretches)
    return again, all_of_it


def _is_spread(cost: Cost | None) -> bool:
    if cost is None or not (cost.family == "pointwise" or isinstance(cost.work, Product)):
        return False
    return cost.write_bytes >= max(_NOTABLE_BYTES, _LARGER * cost.read_bytes)


def _grown(base: Baseline, spans: list[Span]) -> list[Span]:
    """Return the stretches with the ops behind that read only what was made in them, or make more of it."""
    ops = base.ops
    made = {_largest(base, spans[0][0])}

    def follows(place: int) -> bool:
        """Return whether an op reads only what was made, or makes more; it is then made, too."""
        cost, tensors = ops.cost[place], tensors_in(base, place, place + 1)
        more = _is_spread(cost)
        same = not products(ops[place : place + 1])[0] and bool(tensors) and of_sizes(made, tensors)
        if cost is None or not (more or same):
            return False
        made.add(_largest(base, place))
        return True

    return lengthened(base, spans, follows)


def _largest(base: Baseline, place: int) -> int:
    """Return the number of elements that an elementwise op or a product writes."""
    work = base.ops.cost[place].work
    if isinstance(work, Product):
        return work.groups * work.m * work.n
    return max((math.prod(shape) for shape in _broadcast(tensors_in(base, place, place + 1))), default=0)


def _broadcast(tensors: Tensors) -> Iterator[tuple[int, ...]]:
    """Yield the shape of what an elementwise op makes of these tensors, if they fit each other."""
    try:
        yield np.broadcast_shapes(*(shape for _, shape in tensors))
    except ValueError:
        return


def _are_parts(base: Baseline, spans: list[Span]) -> bool:
    """Return whether a later op reads a tensor that is as many times as long: the spans are about its parts."""
    together = {len(spans) * side for _, shape in tensors_in(base, *spans[0]) for side in shape if side > 1}
    later = tensors_in(base, spans[-1][1], len(base.ops))
    return any(side in together for _, shape in later for side in shape)


def _written(base: Baseline, spans: list[Span]) -> bool:
    """Return whether an op between these spans writes a tensor of the type and size of one of their inputs."""
    ops = base.ops
    inputs = {(kind, size_of(kind, shape)) for kind, shape in tensors_in(base, *spans[0])}
    for place in range(spans[0][1], spans[-1][0]):
        cost, tensors = ops.cost[place], tensors_in(base, place, place + 1)
        if cost is None or any((kind, cost.write_bytes) in inputs for kind, _ in tensors[:1]):
            return True
    return not inputs


_PASSES = 4
_MORE_ROWS = 16
"""Rows of a product for each of the usual product from which it is not about the new token."""
_A_FEW_TOKENS = 1 << 16
"""Most bytes of tokens that the host chooses."""
_NEXT = re.compile(r"^aten::(?:argmax|multinomial|topk|max)$")


def _rows_of_before(base: Baseline) -> Rows:
    """Select products of many rows in equal passes that each choose one token: the rows were there before."""
    ops, again = base.ops, np.zeros(len(base.ops), dtype=bool)
    chosen = np.flatnonzero(which(ops.call, _NEXT.match))
    if base.trains or len(chosen) < _PASSES:
        return again
    many = _of_many_rows(base, chosen)
    counts = {int(many[start:end].sum()) for start, end in pairwise(chosen)}
    if len(counts) == 1 and counts != {0}:
        again[chosen[0] :] = (many | _beside(ops, many))[chosen[0] :]
    return again


def _beside(ops: OpList, many: Rows) -> Rows:
    """Select what the calls of these products do beside them: copies of what they read, and adding a bias."""
    rows, alike = np.zeros(len(ops), dtype=bool), ops.call[1:] == ops.call[:-1]
    copies, adds = ops.name == "aten::copy_", ops.name == "aten::add_"
    for place in np.flatnonzero(many & (ops.call != ops.name)).tolist():
        begin = place
        while begin and copies[begin - 1] and alike[begin - 1]:
            begin -= 1
        rows[begin:place] = True
    rows[1:] |= adds[1:] & many[:-1] & alike
    return rows


def _of_many_rows(base: Baseline, chosen: Ints) -> Rows:
    """Select the products of far more rows than others have: by their costs, else by their time, without those of the
    tokens' logits, whose weights are large, if the host sends nothing large to the passes."""
    ops = base.ops
    weighs = where(ops, lambda cost: isinstance(work := cost and cost.work, Product) and bool(work.weight))
    if weighs.any():
        size = np.array([cost.work.m if weighs[place] else 0 for place, cost in enumerate(ops.cost)])
        return np.asarray(size > _MORE_ROWS * np.median(size[weighs]))
    linear = (ops.call == "aten::linear") & products(ops)
    after = linear & (np.arange(len(ops)) > chosen[0])
    sent = base.recorded.copies_like(ops, TO_DEVICE) & (base.recorded.copied_bytes(ops) > _A_FEW_TOKENS)
    if not after.any() or sent[chosen[0] :].any():
        return np.zeros(len(ops), dtype=bool)
    many = linear & (ops.kernel_ns > _MORE_ROWS * np.median(ops.kernel_ns[after]))
    places = np.flatnonzero(linear)
    before = np.searchsorted(places, chosen[1:])
    many[places[before[before > 0] - 1]] = False
    return np.asarray(many)


def _propagated(base: Baseline) -> Rows:
    """Select sparse products without a gradient at the beginning of a training step: of features, not of weights."""
    ops, sparse = base.ops, which(base.ops.call, lambda call: "sparse" in call.lower())
    leads = np.cumsum(~sparse) == 0
    if not base.trains or not in_phase(ops, "backward").any() or (sparse & in_phase(ops, "backward")).any():
        return np.zeros(len(ops), dtype=bool)
    return np.asarray(leads)
