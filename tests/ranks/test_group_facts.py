"""FSDP, experts and pipelines are recognized by the calls of a group."""

from math import isnan

import numpy as np
import pandas as pd
import pytest
from rank_summaries import call, summary

from tracekit.analyzers.ranks import analyze_ranks
from tracekit.analyzers.ranks.aligned import parallelism
from tracekit.analyzers.ranks.job_tables import group_facts
from tracekit.reports.ranks import words


def calls(*rows, **columns):
    """Return calls from (rank, step, kind, phase, bytes); each takes 10 ns, of which 4 are the rank's own."""
    table = pd.DataFrame(rows, columns=["rank", "step", "kind", "phase", "bytes"])
    return table.assign(**{"start_ns": 0, "end_ns": 10, "device_start_ns": 0, "device_end_ns": 4} | columns)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([("all-reduce", "backward", 100)] * 3 + [("all-gather", "forward", 1)], "data"),
        ([("all-gather", "forward", 50), ("all-gather", "backward", 50), ("reduce-scatter", "backward", 100)], "fsdp"),
        ([("all-gather", "forward", 50), ("all-gather", "backward", 50), ("all-reduce", "backward", 100)], "fsdp"),
        ([("all-reduce", "forward", 9)] * 4 + [("all-reduce", "backward", 9)] * 4, "tensor"),
        ([("all-gather", "forward", 9)] * 4 + [("reduce-scatter", "forward", 9)] * 4, "tensor"),
        ([("all-to-all", "forward", 9)] * 2, "expert"),
        ([("send-receive", "forward", 9)] * 2, "pipeline"),
        ([("broadcast", "forward", 9)], ""),
    ],
)
def test_what_a_group_is_for(rows, kind):
    assert parallelism(calls(*((0, 0, *row) for row in rows)), steps=1, trains=True) == kind


def test_without_a_backward_pass_reductions_are_those_of_activations():
    reduced = [(0, 0, "all-reduce", "", 9)] * 4
    assert parallelism(calls(*reduced), steps=1, trains=False) == "tensor"
    assert parallelism(calls(*reduced), steps=4, trains=False) == "data", "one a step: a metric"


def test_overlap_is_own_time_during_calls():
    facts = group_facts(calls((0, 0, "all-reduce", "", 8)), "data", np.ones((1, 1)))
    assert facts["overlap"] == 0.4
    assert isnan(facts["regathered"]) and isnan(facts["imbalance"])


def test_weights_are_gathered_again_or_kept():
    forward = [(0, 0, "all-gather", "forward", 30), (0, 0, "all-gather", "forward", 10)]
    again = group_facts(calls(*forward, (0, 0, "all-gather", "backward", 30)), "fsdp", np.ones((1, 1)))
    assert again["regathered"] == 0.75
    assert group_facts(calls(*forward), "fsdp", np.ones((1, 1)))["regathered"] == 0.0


def test_load_of_experts_and_stages():
    tokens = [(0, 0, "all-to-all", "", 30), (1, 0, "all-to-all", "", 10), (0, 1, "all-to-all", "", 20)]
    assert group_facts(calls(*tokens, (1, 1, "all-to-all", "", 20)), "expert", np.ones((2, 2)))["imbalance"] == 1.25
    own = np.array([[100.0, 100.0], [300.0, 300.0]])
    assert group_facts(calls((0, 0, "send-receive", "", 1)), "pipeline", own)["imbalance"] == 1.5


def test_a_job_says_what_its_groups_show():
    def fsdp(late):
        gathers = [call(10 + late, 20, kind="all-gather", phase="forward", sequence=0, group="g")]
        gathers += [call(40, 50, kind="all-gather", phase="backward", sequence=1, group="g")]
        return [*gathers, call(60, 70, kind="reduce-scatter", phase="backward", sequence=2, group="g")]

    ranks = [summary(n, fsdp(2 * n), groups=[("g", (0, 1))]) for n in (0, 1)]
    said = words.parallelisms(analyze_ranks(ranks, range(2)))
    assert said == [
        "FSDP: 0 % of its communication overlaps with computation; weights are gathered again in the backward pass "
        "(reshard_after_forward=True)."
    ]
