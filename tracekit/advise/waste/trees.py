"""Detector of the nodes of a tree, whose cells a program calls one by one, though those of a level are independent."""

import math

import numpy as np

from tracekit.advise.waste.as_one import gradients_of
from tracekit.advise.waste.finding import Finding, in_first_rounds, lessened
from tracekit.advise.waste.repeats import tensors_in
from tracekit.advise.waste.rounds import JOINS, cells
from tracekit.analyzers.core import Ints, Outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, in_phase, pick

_STATE = "aten::tanh"
"""An op of each cell, also of those of leaves, which read no other cell's result."""


def cells_of_a_tree(base: Baseline) -> Finding | None:
    """Find cells that each join the results of a number of others, which rises and falls from cell to cell as that of a
    node's children does. Steps of a sequence join as many each time; batches of packed sequences only shrink, and
    memories only grow."""
    steps = [step for calls in cells(base) for step in calls]
    children = [_children(base, step) for step in steps]
    changes = np.diff(children)
    if not steps or min(children) < 1 or not ((changes > 0).any() and (changes < 0).any()):
        return None
    ops, places = base.ops, _of_all_nodes(base.ops, steps)
    states = (ops.name[steps[0]] == _STATE).sum()
    nodes = max(len(steps), int((ops.name[places] == _STATE).sum() / max(states, 1)))
    rows = gradients_of(ops, places, len(steps))
    back = np.flatnonzero(rows)
    rows[places] = True
    loops = [each for each in (places, back) if len(each) >= nodes]
    part = _levels(nodes, float(np.mean(children))).mapped(lambda levels: min(1.0, levels / nodes))

    def change(run: Baseline, outcome: Outcome) -> OpList:
        rounds = max(1, round(1 / pick(part, outcome)))
        return in_first_rounds(lessened(rows, part, part), [(each, rounds) for each in loops])(run, outcome)

    return Finding(rows, change, nodes, loops=(places,), looped=part, way="cells-of-a-tree")


def _children(base: Baseline, step: Ints) -> int:
    """Return the rows that the op behind the first joins of a cell reads, by recorded shapes; 0 if it joins none."""
    joins = [place + 1 for place in step.tolist() if base.ops.call[place] in JOINS]
    reads = (tensors_in(base, place, place + 1)[:1] for place in joins if place < len(base.ops))
    return next((each[0][1][0] for each in reads if each), 0)


def _of_all_nodes(ops: OpList, steps: list[Ints]) -> Ints:
    """Return the places of these cells, and of the ops of their layers that are called in them: those of leaves."""
    all_steps = np.concatenate(steps)
    layers = [layer for layer in set(ops.layer[all_steps]) if layer]
    rows = np.isin(ops.layer.astype(str), layers) & np.isin(ops.name.astype(str), list(set(ops.name[all_steps])))
    rows &= ~in_phase(ops, "backward")
    rows[all_steps] = True
    return np.flatnonzero(rows)


def _levels(nodes: int, children: float) -> Outcomes:
    """Return the levels of a tree: of a balanced one at best, of a random one (the square root of 2 pi n) at worst, and
    their geometric mean in between."""
    balanced, random = 1 + math.log(nodes) / math.log(max(children, 1.01)), math.sqrt(2 * math.pi * nodes)
    best = min(balanced, random)
    return Outcomes(random, math.sqrt(best * random), best)
