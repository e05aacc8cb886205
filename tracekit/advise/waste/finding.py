"""What a detector finds: work of a step that a better program would not do, and the step without it."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from tracekit.analyzers.core import Floats, Ints, Outcomes, outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import PYTHON, Baseline, OpList, Outcome, Outside, Rows, pick, retimed

Change = Callable[[Baseline, Outcome], OpList]

NOTABLE = 0.01
"""Waste below this fraction of a step is ignored."""
GONE = Outcomes(0.0, 0.0, 0.0)
STAYS = Outcomes(1.0, 1.0, 1.0)

_LEFT = outcomes(__file__)["left"]
"""Fraction of the host work that is waste for sure, but remains."""


class Finding(msgspec.Struct, frozen=True):
    """Waste of one kind in a step."""

    rows: Rows
    """Ops that do it, or a part of it."""
    change: Change
    """Returns the op list of the step without it."""
    times: int
    """How often it happens in a step."""
    sure: tuple[str, ...] = ()
    """Causes of host work outside the model that are waste."""
    likely: tuple[str, ...] = ()
    """Causes that are waste except in the worst outcome."""
    tokens: float = 0.0
    """Number of tokens that are computed for each one that is needed; 0: it is not about tokens."""
    notes: tuple[str, ...] = ()
    host_ns: float = 0.0
    """Host time of the model's ops that is waste."""
    loops: tuple[Ints, ...] = ()
    """Places of the ops of loops of which one round is left."""
    looped: Outcomes = STAYS
    """Fraction that remains of Python's work between the ops of these loops."""
    way: str = ""
    """Which of the ways of its kind it is."""

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        """Return the host work outside the model that remains."""
        rest = base.outside.scaled(pick(_LEFT, outcome), self.sure)
        for places in self.loops:
            first, last = places[[0, -1]] / len(base.ops)
            rest = rest.scaled(pick(self.looped, outcome), PYTHON, first, last)
        return rest if outcome == "worst" else rest.scaled(0.0, self.likely)


def longest(found: Iterable[Finding | None], ns: Floats) -> Finding | None:
    """Return the finding whose ops take most of these times, of which each op has one; None if there is none."""
    return max(filter(None, found), key=lambda each: float(ns[each.rows].sum()), default=None)


def removed(rows: Rows) -> Change:
    """Return the change that leaves out these ops."""

    return lambda base, _: base.ops[~rows]


def lessened(rows: Rows, kept: Outcomes, host: Outcomes = STAYS, cost: Callable[[Cost], Cost] | None = None) -> Change:
    """Return the change that shortens these ops: to the modelled time of another cost where their cost is known, else
    to a fraction of their kernel time. `host` is the fraction of their host time that remains."""

    def change(base: Baseline, outcome: Outcome) -> OpList:
        modelled = rows & base.ops.costed & (cost is not None)
        ops = base.ops
        if cost is not None and modelled.any():
            part = retimed(ops[modelled], cost, base.gpu, outcome)
            kernel, costs = ops.kernel_ns.copy(), ops.cost.copy()
            kernel[modelled], costs[modelled] = np.minimum(part.kernel_ns, kernel[modelled]), part.cost
            ops = ops.assign(kernel_ns=kernel, cost=costs)
        factor = np.where(rows & ~modelled, pick(kept, outcome), 1.0)
        return ops.assign(
            kernel_ns=ops.kernel_ns * factor, host_ns=ops.host_ns * np.where(rows, pick(host, outcome), 1.0)
        )

    return change


def in_first_rounds(shorter: Change, loops: Sequence[tuple[Ints, int]]) -> Change:
    """Return the change after which the first round of each loop takes what is left of all, and the others are left
    out, with their launches and waits. A loop is the places of its ops, and how many rounds these are."""
    firsts = [(places, places[: -(-len(places) // rounds)]) for places, rounds in loops]

    def change(base: Baseline, outcome: Outcome) -> OpList:
        ops = shorter(base, outcome)
        kernel, host, later = ops.kernel_ns.copy(), ops.host_ns.copy(), np.zeros(len(ops), dtype=bool)
        for places, first in firsts:
            for times in (kernel, host):
                times[first] = times[places].sum() / len(first)
            later[places[len(first) :]] = True
        return ops.assign(kernel_ns=kernel, host_ns=host)[~later]

    return change
