"""Why a device was idle."""

import numpy as np
import pandas as pd
import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import Covered, shown_steps


def only_gap(trace: Handmade):
    """Return the gap between two work items, without the one before the first."""
    gaps = analyze(trace.trace()).gaps
    gaps = gaps[gaps["work"] > 0]
    assert len(gaps) == 1
    return gaps.iloc[0]


def test_a_late_launch_is_the_hosts():
    gap = only_gap(Handmade().launched("a", 0, 5, 10).launched("b", 100, 105, 10))
    assert (gap["start_ns"], gap["duration_ns"], gap["cause"]) == (15_000, 90_000, "dispatch")


def test_work_that_was_queued_waits_for_its_launch():
    gap = only_gap(Handmade().launched("a", 0, 5, 10).launched("b", 2, 18, 10))
    assert (gap["duration_ns"], gap["cause"]) == (3_000, "launch")


def test_a_gap_mostly_behind_the_launching_call_is_launch_latency():
    gap = only_gap(Handmade().launched("a", 0, 5, 10).launched("b", 16, 25, 10))
    assert gap["cause"] == "launch"


def test_a_host_that_waited_for_the_device_has_nothing_queued():
    trace = Handmade().launched("a", 0, 5, 10).host("runtime", "cudaDeviceSynchronize", 2, 15)
    assert only_gap(trace.launched("b", 60, 65, 10))["cause"] == "sync"


def test_a_copy_to_the_host_is_a_synchronisation():
    trace = Handmade().host("runtime", "cudaMemcpyAsync", 0, 20, correlation=90)
    trace.device("Memcpy DtoH (Device -> Pageable)", 5, 10, correlation=90, category="memcpy")
    assert only_gap(trace.launched("b", 60, 65, 10))["cause"] == "sync"


def test_a_copy_to_the_device_that_was_called_before_the_gap_is_transfer():
    trace = Handmade().launched("a", 0, 5, 10).host("runtime", "cudaMemcpyAsync", 3, 50, correlation=90)
    trace.device("Memcpy HtoD (Pageable -> Device)", 50, 2, correlation=90, category="memcpy")
    assert only_gap(trace)["cause"] == "transfer"


def test_a_host_in_a_collective_is_communicating():
    trace = Handmade().launched("a", 0, 5, 10).host("op", "c10d::allreduce_", 12, 80)
    gap = only_gap(trace.launched("ncclDevKernel_AllReduce_Sum_f32", 80, 84, 10))
    assert (gap["cause"], gap["op"]) == ("communication", "c10d::allreduce_")


def test_without_its_launch_a_gap_has_no_cause():
    gap = only_gap(Handmade().device("a", 5, 10).device("b", 30, 10))
    assert (gap["cause"], gap["op"]) == ("", "")


def test_each_device_has_its_own_gaps_and_causes_sum_to_them():
    trace = Handmade().launched("a", 0, 5, 10).launched("b", 100, 105, 10).launched("c", 101, 118, 10)
    trace.launched("a", 0, 5, 10, device=1).launched("b", 50, 55, 10, device=1)
    analysis = analyze(trace.trace())
    between = analysis.gaps[analysis.gaps["start_ns"] >= 15_000]
    ends = between["work"] >= 0
    assert between[ends].groupby("device")["duration_ns"].sum().to_dict() == {0: 93_000, 1: 40_000}
    assert analysis.gaps["duration_ns"].sum() == analysis.timeline.steps["idle_ns"].sum()
    causes = analysis.idle_causes.set_index("cause")
    assert causes["idle_ns"].sum() == analysis.timeline.steps["idle_ns"].sum()
    told = causes.loc["dispatch", ["gaps", "mean_ns", "max_ns"]].tolist()
    assert told == pytest.approx([3, (90_000 + 40_000 + 63_000) / 3, 90_000])
    assert causes["share"].sum() == pytest.approx(1)


def test_the_hosts_side_of_the_steps_of_a_timeline(monkeypatch):
    monkeypatch.setattr("tracekit.analyzers.attribute.host_spans.OTHERS", 2)
    trace = Handmade()
    for index, length in enumerate((50, 100, 400)):
        at = 1000 * index
        trace.host("range", f"step: {index}", at, length).host("op", "aten::linear", at + 1, 30)
        trace.host("op", "aten::addmm", at + 2, 20).launched("k", at + 5, at + 10, 3)
        trace.host("runtime", "cudaStreamSynchronize", at + 40, 5)
    spans = analyze(trace.trace()).host_spans
    assert spans["step"].tolist() == [0, 0, 1, 1, 1, 2, 2]
    median = spans[spans["step"] == 1]
    assert median["start_ns"].tolist() == [1_001_000, 1_005_000, 1_040_000]
    assert median["kind"].tolist() == ["op", "launch", "sync"]
    assert median["name"].tolist() == ["aten::linear", "cudaLaunchKernel", "cudaStreamSynchronize"]


def test_a_timeline_shows_the_median_the_shortest_and_the_longest_steps():
    steps = pd.DataFrame({"wall_ns": [9, 1, 5, 5, 8, 5, 5, 7, 6, 5, 4, 3]})
    assert shown_steps(steps).tolist() == [0, 1, 4, 5, 6, 7, 8, 9]
    assert shown_steps(steps[:0]).tolist() == []


def test_covered_time():
    covered = Covered(np.array([10, 0, 12, 40]), np.array([20, 5, 30, 41]))
    assert covered.at(np.array([-1, 0, 5, 10, 29, 30, 40, 50])).tolist() == [
        False, True, False, True, True, False, True, False,
    ]  # fmt: skip
    assert covered.within(np.array([0, 3, 5, -9]), np.array([50, 11, 10, 0])).tolist() == [26, 3, 0, 0]
    nothing = Covered(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert nothing.at(np.array([1])).tolist() == [False]
    assert nothing.within(np.array([1]), np.array([9])).tolist() == [0]
