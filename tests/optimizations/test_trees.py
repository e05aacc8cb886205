"""Cells of a network on a tree, node by node, and steps of a sequence, which they only look like."""

import numpy as np
import pytest
from test_waste import ENGINE, linear, op, run, trained
from test_work_again import found, given

from tracekit.advise import find

WIDTH, CELL = 256, "TreeLSTM_0"
GATES = [
    op(f"aten::{name}", ns=2_000.0, phase="forward", layer=CELL) for name in ("sigmoid", "mul", "add", "tanh", "mul")
]
RISING, SHRINKING, EQUAL = [2, 4, 3, 2] * 7, [28 - each for each in range(28)], [2] * 28


def node(children):
    joins = op("aten::cat", call="aten::stack", ns=2_000.0, phase="forward", layer=CELL)
    adds = op("aten::sum", ns=2_000.0, phase="forward", layer=CELL) | given(("float", children, WIDTH))
    return [joins, adds, linear(1, ns=4_000.0, phase="forward", layer=CELL), *GATES]


def tree(children, leaves=52):
    nodes = [each for count in children for each in node(count)]
    back = op("aten::tanh_backward", call=ENGINE + "TanhBackward0", ns=2_000.0, phase="backward", layer=CELL)
    return trained(*GATES * leaves, *nodes, *[back] * (leaves + len(children)))


def test_nodes_of_a_tree_and_their_leaves_are_one_call_a_level():
    waste, base = find("cell-by-cell"), tree(RISING)
    assert "levels" in waste.how_to(base) and not found("loop-of-small-ops", base)
    best, expected, worst = (waste.transform(base, outcome) for outcome in ("best", "expected", "worst"))
    assert len(best) < len(expected) < len(worst) < len(base.ops) / 3
    assert np.sum(best.name == "aten::tanh_backward") == 6, "five levels and a third"


@pytest.mark.parametrize("joined", [SHRINKING, EQUAL])
def test_steps_that_join_as_many_each_time_or_ever_fewer_are_those_of_a_sequence(joined):
    assert "nn.LSTM" in find("cell-by-cell").how_to(tree(joined))


def test_cells_without_shapes_are_those_of_a_sequence():
    nodes = [each for count in RISING for each in node(count)]
    assert "nn.LSTM" in find("cell-by-cell").how_to(run(*[each | {"inputs": None} for each in nodes]))
