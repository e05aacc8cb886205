"""The sentences about stragglers."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tracekit.analyzers.core import Interval
from tracekit.analyzers.ranks import Reason, Straggler
from tracekit.reports.ranks.words import because, named, said_of_turns, slower_hosts

MS = 1e6


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            Reason("slower device", 1.0, 50 * MS, phase="backward", family="gemm", time_ratio=1.21, flops_ratio=1.0),
            "its backward GEMMs run 1.21 times as long, with the same calls and shapes",
        ),
        (
            Reason("slower device", 1.0, 50 * MS, time_ratio=1.21),
            "its kernels run 1.21 times as long, with the same calls (shapes are not recorded)",
        ),
        (
            Reason("more work", 1.0, 5 * MS, op="aten::mm", layer="h.3", detail="calls", calls_ratio=1.4),
            "it computes 5.00 ms longer per step, on more work: 1.40 times the calls, most of all aten::mm in h.3",
        ),
        (
            Reason("more work", 1.0, 5 * MS, op="bmm", detail="flops", flops_ratio=2.0),
            "it computes 5.00 ms longer per step, on more work: 2.00 times the FLOPs (larger shapes), most of all bmm",
        ),
        (
            Reason("more work", 1.0, 6 * MS, op="aten::mm", detail="flops", flops_ratio=1.29, calls_ratio=1.002),
            "it computes 6.00 ms longer per step, on more work: 1.29 times the FLOPs, most of all aten::mm",
        ),
        (Reason("data loading", 1.0, 5 * MS), "it waits 5.00 ms longer per step for its data"),
        (
            Reason("garbage collection", 1.0, 5 * MS),
            "Python collects garbage for 5.00 ms more per step than on other ranks",
        ),
        (Reason("copies", 1.0, 5 * MS), "its copies between host and device take 5.00 ms longer per step"),
    ],
)
def test_a_cause_in_words(reason, words):
    assert because(reason) == words


def test_more_work_that_nobody_waits_for():
    reason = Reason("more work", 1.0, 6 * MS, op="aten::mm", detail="flops", flops_ratio=1.29)
    said = named(Straggler(1, 0, Interval(0.0, 0.009, 0.027), reason))
    assert said.startswith("Rank 1 (host 0) has more work than its peers; nobody waits for it now (0.9 % [0.0–2.7]")
    assert named(Straggler(1, 0, Interval(0.02, 0.03, 0.04), reason)).startswith("Rank 1 (host 0) costs 3.0 % ")


@pytest.mark.parametrize(
    ("imposed", "said"),
    [
        (
            [[9.0, 0.0], [0.0, 9.0]],
            "The rank that the others wait for longest changes: rank 0 in 1, rank 1 in 1 of 2 steps.",
        ),
        ([[9.0, 0.0], [9.0, 1.0]], ""),
    ],
)
def test_ranks_that_are_late_in_turn(imposed, said):
    rows = [(step, rank, time) for step, times in enumerate(imposed) for rank, time in enumerate(times)]
    job = SimpleNamespace(
        by_step=pd.DataFrame(rows, columns=["step", "rank", "imposed_ns"]),
        stragglers=(),
        waiting_ns=30.0,
        step_ns=100.0,
    )
    assert said_of_turns(job) == said


def test_the_host_is_late_for_a_cause_of_idle_time():
    said = because(Reason("host", 1.0, 5 * MS, detail="dispatch"))
    assert said.startswith("its host is 5.00 ms later per step than others' (dispatch: ")


def test_hosts_that_are_slower_everywhere_are_said_and_not_blamed():
    assert slower_hosts(SimpleNamespace(slower_hosts=())) == ""
    said = slower_hosts(SimpleNamespace(slower_hosts=((0, 1.52),)))
    assert said.startswith("Hosts differ: between the same calls rank 0's takes 1.52 times as long as its peers'.")


def test_a_late_loader_that_nobody_waits_for():
    said = named(Straggler(0, 0, Interval(0.0, 0.006, 0.01), Reason("data loading", 1.0, 40 * MS)))
    assert said.startswith("Rank 0 (host 0) is later than its peers; nobody waits for it now (0.6 % [0.0–1.0]")
