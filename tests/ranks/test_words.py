"""The sentences about stragglers."""

import pytest

from tracekit.analyzers.ranks.causes import Reason
from tracekit.reports.ranks.words import because

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
            "it computes 5.00 ms a step longer, on more work: 1.40 times the calls, most of all aten::mm in h.3",
        ),
        (
            Reason("more work", 1.0, 5 * MS, op="bmm", detail="flops", flops_ratio=2.0),
            "it computes 5.00 ms a step longer, on more work: 2.00 times the FLOPs (larger shapes), most of all bmm",
        ),
        (Reason("data loading", 1.0, 5 * MS), "it waits 5.00 ms a step longer for its data"),
        (
            Reason("garbage collection", 1.0, 5 * MS),
            "Python collects garbage for 5.00 ms a step more than on other ranks",
        ),
        (Reason("copies", 1.0, 5 * MS), "its copies between host and device take 5.00 ms a step longer"),
    ],
)
def test_a_cause_in_words(reason, words):
    assert because(reason) == words


def test_the_host_is_late_for_a_cause_of_idle_time():
    said = because(Reason("host", 1.0, 5 * MS, detail="dispatch"))
    assert said.startswith("its host is 5.00 ms a step later than others' (dispatch: ")
