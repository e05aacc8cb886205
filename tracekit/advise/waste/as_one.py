"""Changes by which one call does the work of several: of its ops in the forward pass, and of those behind in the
backward pass."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tracekit.advise.waste.finding import STAYS, Change, Finding, in_first_rounds, lessened
from tracekit.analyzers.core import Ints, Outcomes, outcomes
from tracekit.analyzers.cost import batched
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, changed, in_phase, pick, retimed

_GROWS = outcomes(__file__)["grows"]
"""Exponent of the growth of kernels of unknown cost with the number of items."""
_IDLE = 2
"""Host time of small ops in times of their kernels'."""


def is_small(ops: OpList, rows: Rows) -> bool:
    return bool(_IDLE * ops.kernel_ns[rows].sum() < ops.host_ns[rows].sum())


def together(ops: OpList, calls: Sequence[Ints], way: str = "") -> Finding:
    """Return the finding that all calls become the first one, for as many items."""
    others, first = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    others[np.concatenate(calls[1:])], first[calls[0]] = True, True
    items = len(calls)
    known, unknown = first & ops.costed, first & ~ops.costed

    def change(base: Baseline, outcome: Outcome) -> OpList:
        larger = _enlarged(base, known, items, outcome)
        growth = items ** pick(_GROWS, outcome)
        return larger.assign(kernel_ns=changed(larger.kernel_ns, unknown, larger.kernel_ns[unknown] * growth))[~others]

    return Finding(first | others, change, items, way=way)


_GROWTH_OF: dict[Outcome, Outcome] = {"worst": "best", "expected": "expected", "best": "worst"}
"""A large change of times, which is best where they shrink, is worst where they grow."""


def _enlarged(base: Baseline, rows: Rows, items: int, outcome: Outcome) -> OpList:
    """Return the op list in which these ops have the cost of all items, and their modelled time."""
    if not rows.any():
        return base.ops
    part = retimed(base.ops[rows], partial(batched, factor=items), base.gpu, _GROWTH_OF[outcome])
    return base.ops.assign(
        kernel_ns=changed(base.ops.kernel_ns, rows, part.kernel_ns), cost=changed(base.ops.cost, rows, part.cost)
    )


def repeated_in(ops: OpList, items: int) -> Rows:
    """Select the ops whose name is called at least once an item."""
    _, places, counts = np.unique(ops.name.astype(str), return_inverse=True, return_counts=True)
    return np.asarray(counts[places] >= items)


def gradients_of(ops: OpList, places: Ints, items: int) -> Rows:
    """Select the ops of the backward pass of the layers that run at these places, where layers are known, whose name is
    called at least once an item."""
    others = np.asarray(ops.layer != "") & ~np.isin(ops.layer.astype(str), np.unique(ops.layer[places].astype(str)))
    return in_phase(ops, "backward") & ~others & repeated_in(ops, items)


def for_all(ops: OpList, rows: Rows, items: int, host: Outcomes = STAYS) -> Change:
    """Return the change by which one call of each op does this for all items, in so many times the host time of one,
    and in the modelled time of all where its cost is known."""
    kept = _GROWS.mapped(lambda growth: items ** (growth - 1))
    shorter = lessened(rows, kept, host.mapped(lambda times: times / items))
    calls = [np.flatnonzero(rows & (ops.name == name)) for name in set(ops.name[rows])]
    known = rows & ops.costed

    def modelled(base: Baseline, outcome: Outcome) -> OpList:
        fewer, larger = shorter(base, outcome), _enlarged(base, known, items, outcome).kernel_ns / items
        return fewer.assign(kernel_ns=np.where(known, np.minimum(larger, base.ops.kernel_ns), fewer.kernel_ns))

    return in_first_rounds(modelled, [(places, items) for places in calls])
