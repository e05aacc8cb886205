"""Simulates neighbouring all-reduces as one."""

from dataclasses import replace

import numpy as np
import pytest
from rank_summaries import MS, call, summary

from tracekit.analyzers.ranks import analyze_ranks
from tracekit.analyzers.ranks.tables import RANK_WORK
from tracekit.analyzers.ranks.what_ifs import merged


def job(kind):
    calls = [call(10 * n, 10 * n + 5, kind=kind, phase="backward", sequence=n, group="g") for n in range(1, 9)]
    ranks = [summary(n, calls, groups=[("g", (0, 1))]) for n in (0, 1)]
    columns = {column.name: [""] if column.dtype == "category" else [1] for column in RANK_WORK.columns}
    work = RANK_WORK.frame(columns | {"phase": ["backward"]})
    return analyze_ranks([replace(rank, work=work) for rank in ranks], range(2))


def test_the_last_of_four_carries_the_bytes_of_all():
    factors = merged(np.array([5.0, 6.0, 7.0, 8.0, 9.0]), 4, 5.0)
    assert factors.tolist() == [0.0, 0.0, 0.0, pytest.approx((26 - 3 * 5) / 8), 1.0]


def test_short_calls_gain_what_a_call_takes():
    """Eight exposed calls consist of 5 ms of overhead each, so that two buckets save six times 5 ms."""
    gain = {each.change: each.speedup for each in job("all-reduce").what_ifs}["larger-buckets"]
    assert gain == pytest.approx(100 / 70, rel=0.02)
    assert job("all-reduce").step_ns == pytest.approx(100 * MS)


def test_only_data_parallelism_has_buckets():
    assert "larger-buckets" not in {each.change for each in job("all-to-all").what_ifs}
