"""Detector of what a training step computes as the last step did: of inputs that no step writes, without a gradient."""

import re
from functools import partial

import numpy as np

from tracekit.advise.waste.repeats import inside, size_of, spans_of, tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.predict import Baseline, Rows, in_phase, which

_VARIES = re.compile(
    r"rand|dropout|bernoulli|normal_|uniform_|empty|multinomial|fill_|zero|ones|full|arange|copy_|::to$"
    r"|::(?:index|index_put|cat|stack)$|_$"
)
"""Ops whose results may differ in each step: random ones, new or copied tensors, those on lists of tensors, of which a
trace records nothing, and those that change a tensor in place."""
_SOON = 4
"""Ops within which a result of unknown size is used."""


def same_in_each_step(base: Baseline) -> Rows:
    """Select ops of a training step through which no gradient flows, and whose inputs nothing in a step writes but ops
    that are selected, too: they compute in each step what they did in the last. An op of unknown cost may write what
    it or the next ops are given."""
    ops, backward = base.ops, in_phase(base.ops, "backward")
    if not base.trains or not backward.any() or _chooses_unknown(base):
        return np.zeros(len(ops), dtype=bool)
    nodes = {call.rpartition(" ")[2].rstrip("0123456789").lower() for call in ops.call[backward]}
    given = [{size_of(*each) for each in tensors_in(base, place, place + 1)} for place in range(len(ops))]
    written = [
        {int(cost.write_bytes)} if cost is not None else set().union(*given[place : place + _SOON])
        for place, cost in enumerate(ops.cost)
    ]
    free = ~which(ops.call, partial(_has_gradient, nodes))
    free &= which(ops.call, lambda call: call.startswith("aten::") and not _VARIES.search(call))
    free &= ~backward & ~in_phase(ops, "optimizer") & (ops.category == "kernel") & np.array(list(map(bool, given)))
    while True:
        others = set().union(*(written[place] for place in np.flatnonzero(~free).tolist()))
        kept = free & np.array([not (sizes & others) for sizes in given])
        if (kept == free).all():
            return kept
        free = kept


_EPOCHS, _PRODUCTS = "aten::randperm", 4
"""The call that puts the items of an epoch in order, and fewest products of a network."""


def encoded_each_epoch(base: Baseline) -> Rows:
    """Select the passes of a network without gradients in all epochs of a training step but the first, if nothing comes
    from the host: the frozen network encodes the same items in another order."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    epochs = np.cumsum((ops.call == _EPOCHS) & np.append(True, ops.call[:-1] != _EPOCHS))
    if not base.trains or epochs[-1] < 2 or not in_phase(ops, "optimizer").any():
        return rows
    if base.recorded.copies_like(ops, TO_DEVICE)[epochs > 0].any():
        return rows
    free = in_phase(ops, "forward") & ~base.recorded.for_gradients(ops)
    spans = [(start, end) for start, end in spans_of(free) if products(ops[start:end]).sum() >= _PRODUCTS]
    alike = {tuple(ops.name[start:end]) for start, end in spans}
    varies = any(_RANDOM.search(name) for names in alike for name in names)
    if len(alike) == 1 and not varies and len(spans) % epochs[-1] == 0:
        rows |= inside(ops, [span for span in spans if epochs[span[0]] > 1])
    return rows


_RANDOM = re.compile(r"rand|dropout|bernoulli|normal_|uniform_|multinomial")


def _has_gradient(nodes: set[str], name: str) -> bool:
    """Return whether a node of autograd is of this op, or of one whose name begins so: LinalgSolveExBackward0."""
    return any(node.startswith(name.replace("aten::", "").replace("_", "")) for node in nodes)


_CHOOSES = re.compile(r"^aten::(?:topk|sort|argsort|nonzero|unique\w*|multinomial)$")


def _chooses_unknown(base: Baseline) -> bool:
    """Return whether an op of which neither inputs nor cost are known makes indices, which may change what follows."""
    rows = np.flatnonzero(which(base.ops.call, _CHOOSES.match) & ~base.ops.costed)
    return any(not tensors_in(base, place, place + 1) for place in rows.tolist())
