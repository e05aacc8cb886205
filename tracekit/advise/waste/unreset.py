"""Gradients that nothing resets, told without shapes: those that a pass adds to older ones before each update."""

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.finding import Change, Finding, lessened
from tracekit.advise.waste.gradients import ACCUMULATES, added_to_older
from tracekit.advise.waste.repeats import Span, spans_of
from tracekit.analyzers.core import Ints, outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, which

OF_WEIGHTS = outcomes(__file__)["of_weights"]
"""Time of a convolution's backward pass without the gradient of its weights."""
_ZEROS = ("aten::zero_", "aten::_foreach_zero_")
_OF_LAYERS = re.compile(r"::(?:(?:add)?mm|convolution\w*)$")
_CASTS = "autograd::engine::evaluate_function: ToCopyBackward0"
_SUM, _ADDS = "aten::sum", ("aten::add", "aten::add_")
_UNRESET = 4
"""Fewest gradients that nothing resets."""
_AT_THE_END = 8
"""Most ops of a pass after the last of them, if it goes on for nothing else."""


class _Layer(NamedTuple):
    """The backward pass of a layer: places of its products, and after the ops on its gradients."""

    first: int
    last: int
    end: int
    fresh: bool
    """Whether a gradient of its weight or its bias may be none that is added to an older one."""
    older: bool
    """Whether that of its weight is added to an older one."""


def unreset_gradients(base: Baseline) -> Finding | None:
    """Find gradients of layers' weights that a pass adds to older ones although an update follows: nothing resets them,
    as an optimizer does. Behind the last layer whose gradients are reset, the rest of a pass that ends with those is
    unused; without such a layer, it goes on to what else is trained, as the input of a network."""
    ops, passes = base.ops, spans_of(in_phase(base.ops, "backward"))
    if fills_zeros(ops) or not one_update_a_pass(ops):
        return None
    alone, mixed = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    alone[[at for add in np.flatnonzero(added_to_older(ops)).tolist() for at in _made_for(ops, add)]] = True
    for span in passes:
        layers = list(_layers(base, *span))
        for layer in filter(lambda each: each.older, layers):
            (alone if layer.last > layer.first else mixed)[layer.last] = True
            alone[layer.last + 1 : layer.end] |= _sums(ops[layer.last + 1 : layer.end], ops.call[layer.last])
        if behind := _behind(ops, span, layers):
            alone[slice(*behind)], mixed[slice(*behind)] = True, False
    made = int((added_to_older(ops) & (alone | mixed)).sum())
    way = "passes" if any(not (alone | mixed)[slice(*span)].any() for span in passes) else ""
    change = partial(without, alone, lessened(mixed, OF_WEIGHTS))
    return Finding(alone | mixed, change, made, way=way) if made >= _UNRESET else None


def _layers(base: Baseline, begin: int, end: int) -> Iterator[_Layer]:
    """Yield the layers of a pass. A layer has a convolution, or one product for each of its input and its weight, in
    one node of autograd's graph; one product is for its input."""
    ops, nodes, place = base.ops, base.recorded.nodes_of(base.ops), begin
    for first in (begin + np.flatnonzero(which(ops.name[begin:end], _OF_LAYERS.search))).tolist():
        if first >= place:
            two = _alike(ops, nodes, first, min(first + 1, end - 1))
            place = last = first + two
            while place + 1 < end and _on_gradients(ops, place + 1):
                place += 1
            place += 1
            part = ops[last + 1 : place]
            sums = int(_sums(part, ops.call[last]).sum())
            computed, added = sums + (two or "mm" not in ops.name[last]), int(added_to_older(part).sum())
            yield _Layer(first, last, place, fresh=computed > added, older=added > sums)


def _sums(ops: OpList, call: str) -> Rows:
    """Select the gradients of biases that a layer's backward pass sums up."""
    return np.asarray((ops.name == _SUM) & (ops.call == call))


def _alike(ops: OpList, nodes: Ints, first: int, second: int) -> bool:
    """Return whether two ops are different products of one node."""
    named = "mm" in ops.name[first] and ops.name[first] == ops.name[second]
    return second > first and named and ops.call[first] == ops.call[second] and bool(nodes[first] == nodes[second])


def _on_gradients(ops: OpList, place: int) -> bool:
    """Return whether an op casts, sums up or adds gradients, as behind the products of a layer."""
    return ops.call[place] in (ACCUMULATES, _CASTS) or ops.name[place] in (_SUM, *_ADDS)


def _made_for(ops: OpList, add: int) -> Iterator[int]:
    """Yield an op that adds to an older gradient, and those right before that cast it, sum it up, and multiply it."""
    yield add
    before = add - 1
    if ops.call[before] == _CASTS:
        yield before
        before -= 1
    if ops.name[before] == _SUM:
        yield before
        if ops.name[before - 1] == "aten::mul" and ops.call[before - 1] == ops.call[before]:
            yield before - 1


def _behind(ops: OpList, span: Span, layers: list[_Layer]) -> Span | None:
    """Return the part of a pass behind the last layer whose gradients are reset, if it ends with others."""
    begin = max((layer.end for layer in layers if layer.fresh), default=span[1])
    adds = begin + np.flatnonzero(added_to_older(ops)[begin : span[1]])
    ends = len(adds) >= 1 and span[1] - adds[-1] <= _AT_THE_END
    return (begin, span[1]) if ends and layers[-1].first < adds[-1] else None


def fills_zeros(ops: OpList) -> bool:
    return bool((np.isin(ops.name, _ZEROS) | np.isin(ops.call, _ZEROS)).any())


def one_update_a_pass(ops: OpList) -> bool:
    passes, updates = (sum(1 for _ in spans_of(in_phase(ops, phase))) for phase in ("backward", "optimizer"))
    return passes == updates


def without(rows: Rows, change: Change, run: Baseline, outcome: Outcome) -> OpList:
    return change(run, outcome)[~rows]
