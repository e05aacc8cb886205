"""Ranks whose devices get more work than their peers'."""

import numpy as np
import pandas as pd
import pytest
from rank_summaries import call, summary

from tracekit.analyzers.core import Interval
from tracekit.analyzers.ranks.causes import extra_work
from tracekit.analyzers.ranks.own_parts import OwnParts
from tracekit.analyzers.ranks.stragglers import Cost, _by_its_work
from tracekit.analyzers.ranks.tables import RANK_WORK

STEPS = 3
SHARE = Interval(0.09, 0.1, 0.11)


def work(*rows):
    """Return a work table from (layer, op, calls, duration_ns, flops) of all steps."""
    table = pd.DataFrame(rows, columns=["layer", "op", "calls", "duration_ns", "flops"])
    return RANK_WORK.frame({**table, "phase": ["forward"] * len(table), "family": ["gemm"] * len(table), "bytes": 0.0})


def extra(flops, tables, alike):
    ranks = [summary(number, [call(0, 1)], steps=STEPS) for number in range(len(tables))]
    for rank, table in zip(ranks, tables, strict=True):
        object.__setattr__(rank, "work", table)
    counts = {"flops": np.asarray(flops, dtype=float), "bytes": np.zeros((len(tables), STEPS))}
    return extra_work(ranks, OwnParts(np.zeros((len(tables), STEPS)), {}, {}, counts), alike)


USUAL = work(("a", "mm", 30, 3_000, 3e9))
MORE = work(("a", "mm", 30, 3_300, 3e9), ("", "mm", 30, 6_000, 6e9))
EACH = [[1], [0]]


def test_the_time_of_additional_ops_is_that_of_their_own():
    """Ops that both ranks have are slower on this rank, which is not counted as additional work."""
    assert extra([[3e9] * 3, [1e9] * 3], [MORE, USUAL], EACH) == {0: 2_000}


def test_ops_that_another_layer_has_are_no_additional_work():
    moved = work(("b", "mm", 30, 3_000, 3e9), ("", "mm", 30, 6_000, 6e9))
    assert extra([[3e9] * 3, [1e9] * 3], [moved, USUAL], EACH) == {0: 2_000}


def test_an_op_with_as_much_as_usual_in_other_layers_counts_for_nothing():
    """Its slower kernels would hide the additional product."""
    usual = work(("a", "copy", 30, 9_000, 0), ("a", "mm", 30, 3_000, 3e9))
    moved = work(("b", "copy", 30, 3_000, 0), ("a", "mm", 30, 3_000, 3e9), ("", "mm", 30, 6_000, 6e9))
    assert extra([[3e9] * 3, [1e9] * 3], [moved, usual], EACH) == {0: 2_000}


@pytest.mark.parametrize(
    ("cost", "extra_ns", "cause"),
    [
        (Cost(1, 0, SHARE, 8.0), 5.0, "more work"),
        (Cost(1, 0, SHARE, 8.0, "compute"), 5.0, "more work"),
        (Cost(1, 0, SHARE, 8.0), 3.0, ""),
        (Cost(1, 0, SHARE, 8.0, "data loading"), 5.0, "data loading"),
        (Cost(1, 0, SHARE, 8.0), 0.0, ""),
    ],
)
def test_work_that_takes_half_of_an_excess_is_its_cause(cost, extra_ns, cause):
    assert _by_its_work(cost, extra_ns).of == cause


@pytest.mark.parametrize(
    ("flops", "why"),
    [
        ([[1e9, 3e9, 2e9], [1e9] * 3], "steps of any length, as of sequences, may be more by chance"),
        ([[1.01e9] * 3, [1e9] * 3], "1 % is no difference"),
    ],
)
def test_no_more_work_than_chance(flops, why):
    assert extra(flops, [MORE, USUAL], EACH) == {}, why


def test_a_tenth_more_in_every_step_is_enough_however_few_there_are():
    assert extra([[1.2e9], [1e9]], [MORE, USUAL], EACH) == {0: 2_000}
    assert extra([[1.05e9], [1e9]], [MORE, USUAL], EACH) == {}


def test_the_only_stage_of_its_kind_is_compared_with_none():
    assert extra([[3e9] * 3, [1e9] * 3], [MORE, USUAL], [[], []]) == {}


def test_experts_that_all_have_loads_of_their_own_are_not_named():
    loads = [[level * 1e9] * 3 for level in (1.0, 1.3, 1.6, 1.9)]
    alike = [[each for each in range(4) if each != rank] for rank in range(4)]
    assert extra(loads, [USUAL, USUAL, USUAL, MORE], alike) == {}
