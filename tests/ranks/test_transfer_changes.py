"""Gains of a job by other communication and by balanced work: small cases computed by hand."""

from dataclasses import replace

import pandas as pd
import pytest
from rank_summaries import call, summary

from tracekit.analyzers.cost import Message, hardware
from tracekit.analyzers.predict import ADAPTER_GBS, HOP_NS, SUSTAINED, message_ns
from tracekit.analyzers.ranks import analyze_ranks
from tracekit.analyzers.ranks.tables import RANK_WORK
from tracekit.analyzers.ranks.what_ifs import Spread, factors_over_faster_links, factors_within_hosts


def gains(kind, calls, flops=(1.0, 1.0)):
    """Return the gains of a step of 100 ms by change. `calls` are (start, end, kind, phase) in ms."""
    made = [
        call(start, end, kind=of, phase=phase, sequence=number, group="g")
        for number, (start, end, of, phase) in enumerate(calls)
    ]
    ranks = [summary(number, made, groups=[("g", (0, 1))]) for number in (0, 1)]
    columns = {column.name: [""] if column.dtype == "category" else [1] for column in RANK_WORK.columns}
    work = RANK_WORK.frame(columns | {"phase": ["backward"]})
    ranks = [
        replace(rank, work=work, steps=rank.steps.assign(flops=count)) for rank, count in zip(ranks, flops, strict=True)
    ]
    job = analyze_ranks(ranks, range(2))
    assert job.groups["parallelism"].tolist() == [kind]
    return {each.change: each.speedup for each in job.what_ifs}


REDUCED = [(10, 30, "all-reduce", "backward"), (60, 80, "all-reduce", "backward")]


def test_three_of_four_steps_reduce_no_gradients():
    """40 of 100 ms are transfers of gradients."""
    assert gains("data", REDUCED)["accumulate"] == pytest.approx(100 / (100 - 0.75 * 40))


def test_weights_that_are_kept_are_gathered_once():
    calls = [
        (10, 20, "all-gather", "forward"),
        (30, 50, "all-gather", "backward"),
        (60, 90, "reduce-scatter", "backward"),
    ]
    said = gains("fsdp", calls)
    assert said["keep-weights"] == pytest.approx(100 / 80)
    assert said["accumulate"] == pytest.approx(100 / (100 - 0.75 * 30)), "weights are gathered in each step"
    assert "keep-weights" not in gains("data", REDUCED) and "rebalance" not in gains("data", REDUCED)


def test_a_faster_link_leaves_what_each_call_takes():
    table = pd.DataFrame({"group": [0, 0, 1], "kind": ["all-reduce"] * 3, "transfer_ns": [10, 50, 40]})
    assert factors_over_faster_links(table).tolist() == [1.0, pytest.approx(30 / 50), 1.0]


def test_only_uneven_work_can_be_divided_in_another_way():
    assert "rebalance" in gains("data", REDUCED, flops=(1.0, 2.0))
    assert "rebalance" not in gains("data", REDUCED, flops=(1.0, 1.01))


def test_weights_that_are_sharded_within_hosts_are_gathered_over_nvlink():
    """32 ranks on 4 hosts. The network carries the shards of 32 MB of the gradients: 1.5 times, as an all-reduce."""
    table = pd.DataFrame({"group": 0, "kind": ["all-gather", "reduce-scatter", "all-reduce"], "bytes": 256_000_000})
    gathers, scatters, reduces = factors_within_hosts(table, {0: "fsdp"}, {0: Spread(32, 4)}, hardware.find("h200"))
    assert gathers == pytest.approx(modelled("all-gather", 8) / modelled("all-gather", 32))
    shards = 1.5 * 32e6 / (ADAPTER_GBS * SUSTAINED) + 4 * HOP_NS
    assert scatters * modelled("reduce-scatter", 32) == pytest.approx(modelled("reduce-scatter", 8) + shards)
    assert reduces == 1.0


def modelled(kind, ranks):
    return message_ns(Message(kind, 256_000_000, ranks), hardware.find("h200"), "nvlink" if ranks == 8 else "ib")


@pytest.mark.parametrize(("kind", "spread"), [("data", Spread(32, 4)), ("fsdp", Spread(8, 1)), ("fsdp", Spread(9, 2))])
def test_other_groups_are_not_sharded_within_hosts(kind, spread):
    table = pd.DataFrame({"group": [0], "kind": ["all-gather"], "bytes": [1000]})
    assert factors_within_hosts(table, {0: kind}, {0: spread}, hardware.find("h200")) is None
