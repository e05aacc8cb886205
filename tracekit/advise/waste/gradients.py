"""Detectors of backward passes that a program runs too often: for each example, or twice through one graph."""

import re
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.finding import Finding, removed
from tracekit.advise.waste.items import for_all, products_of_layers, repeated_in
from tracekit.advise.waste.repeats import spans_of
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import Ints, outcomes
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, remembered, which

_ITEMS = 8
"""Fewest examples of a step."""
_ALIKE = 0.8
"""Fraction of the passes that call the same ops."""
ACCUMULATES = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
_SUMS = ("aten::add", "aten::add_")
_CHANGES = re.compile(r"^aten::(?!fill_|zero_|copy_|relu_|clamp_min_|add_)\w*_$")
"""Ops that change a tensor in place, as an update of weights does; those of layers excepted."""
_UPDATES = re.compile(r"^aten::(?:sub|add)_?$")
_HOST = outcomes(__file__)["mapped"]


def gradients_one_by_one(base: Baseline) -> Finding | None:
    """Find gradients of examples, or rows of a Jacobian, that a program computes one by one."""
    return gradients_for_items(base) or rows_of_a_jacobian(base)


def gradients_for_items(base: Baseline) -> Finding | None:
    """Find forward and backward passes for one example after another, whose gradients are neither added up nor used
    before the next one. Attacks need gradients of their inputs, and each pass of them reads what the last one wrote."""
    ops, back = base.ops, in_phase(base.ops, "backward")
    begins = np.flatnonzero(back & ~np.append(False, back[:-1]))
    passes = [np.arange(*ends) for ends in pairwise(begins)]
    if len(passes) < _ITEMS or _updates(ops, passes[len(passes) // 2]) or not _of_weights(ops, len(begins)):
        return None
    usual = ops.name[passes[len(passes) // 2]].tolist()
    if sum(ops.name[each].tolist() == usual for each in passes) < _ALIKE * len(passes):
        return None
    items, places = len(begins), np.arange(len(ops))
    rows = (places >= begins[0] - len(usual)) & (places < begins[-1] + len(usual)) & repeated_in(ops, items)
    return Finding(rows, for_all(ops, rows, items, _HOST), items)


def rows_of_a_jacobian(base: Baseline) -> Finding | None:
    """Find many equal backward passes through one graph, whose gradients are not added up: each is a row."""
    ops, node = base.ops, base.recorded.nodes_of(base.ops)
    passes = spans_of(in_phase(ops, "backward"))
    if len(passes) < _ITEMS or added_to_older(ops).any() or in_phase(ops, "optimizer")[: passes[-1][1]].any():
        return None
    alike = [(min(node[begin:end]), tuple(ops.name[begin:end])) for begin, end in passes]
    first, usual = passes[0][0], alike[len(alike) // 2]
    if (
        usual[0] < 0
        or alike.count(usual) < _ALIKE * len(passes)
        or base.recorded.for_gradients(ops)[passes[0][0] : passes[0][1]].any()
    ):
        return None
    places = np.arange(len(ops))
    rows = (places >= first) & (places < passes[-1][1])
    return Finding(rows, for_all(ops, rows, len(passes), _HOST), len(passes), way="rows-of-a-jacobian")


def _of_weights(ops: OpList, items: int) -> bool:
    """Return whether each layer but the first of a pass has a gradient of its input, and each one of its weights. A
    pass for the gradient of an input has one for each layer."""
    layers, gradients = products_of_layers(ops)
    return bool(_ALIKE * items <= 2 * layers - gradients <= items / _ALIKE and gradients > layers + _ALIKE * items / 2)


def _updates(ops: OpList, one: Ints) -> bool:
    """Return whether a pass may use its gradients before the next one: it adds them up, changes tensors in place, or
    subtracts or adds as many as there are layers."""
    back = in_phase(ops[one], "backward")
    names, calls = ops.name[one][~back], ops.call[one]
    layers = int(products(ops[one][~back]).sum())
    sums = int(which(names, lambda name: bool(_UPDATES.match(name))).sum())
    optimizes = in_phase(ops[one], "optimizer").any() or which(names, lambda name: bool(_CHANGES.match(name))).any()
    return bool((calls == ACCUMULATES).any() or optimizes or sums >= max(layers, 1))


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
