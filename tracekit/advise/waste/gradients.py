"""Detectors of gradients that a program computes for one example, or for one loss, after another."""

import re
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.finding import Finding, removed
from tracekit.advise.waste.items import for_all, products, products_of_layers, repeated_in
from tracekit.advise.waste.repeats import spans_of
from tracekit.analyzers.core import Ints, outcomes
from tracekit.analyzers.predict import Baseline, OpList, in_phase, which

_ITEMS = 8
"""Fewest examples of a step."""
_ALIKE = 0.8
"""Fraction of the passes that call the same ops."""
_SUMS = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
_CHANGES = re.compile(r"^aten::(?!fill_|zero_|copy_|relu_|clamp_min_|add_)\w*_$")
"""Ops that change a tensor in place, as an update of weights does; those of layers excepted."""
_UPDATES = re.compile(r"^aten::(?:sub|add)_?$")
_HOST = outcomes(__file__)["mapped"]


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
    return Finding(rows, for_all(rows, items, _HOST), items)


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
    return bool((calls == _SUMS).any() or optimizes or sums >= max(layers, 1))


_ONE_PASS = 0.75
"""Products of the forward pass for each one of a backward pass, which has two for most."""
_SHARED = 8
"""Fewest products of the backward pass that several losses share, and gradients that it adds up."""


def backward_for_each_loss(base: Baseline) -> Finding | None:
    """Find backward passes through layers whose gradients the pass before has computed, for another loss of the same
    forward pass. Passes of two forward passes have as many products in the forward pass as one of them has."""
    ops, back = base.ops, in_phase(base.ops, "backward")
    weighs, sums = products(ops) & ~in_phase(ops, "optimizer"), ops.call == _SUMS
    rows, passes, begun = np.zeros(len(ops), dtype=bool), 0, 0
    for (start, end), (begin, stop) in pairwise(spans_of(back)):
        first, second = (np.flatnonzero(weighs[a:b])[::-1] + a for a, b in ((start, end), (begin, stop)))
        begun = begun if passes else int(weighs[:start].sum())
        shared = int(np.argmin([*(ops.name[a] == ops.name[b] for a, b in zip(first, second, strict=False)), False]))
        added = sums[begin:stop].sum() >= max(_SHARED, sums[start:end].sum() / 2)
        if shared >= _SHARED and added and not weighs[end:begin].any() and begun <= _ONE_PASS * len(first):
            rows[second[shared - 1] : stop], passes = True, passes + 1
    return Finding(rows, removed(rows), passes, way="backward-again") if passes else None
