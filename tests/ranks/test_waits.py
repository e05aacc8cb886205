"""Who waits for whom, and the latency of steps with faster ranks or transfers: small cases computed by hand."""

import numpy as np
import pandas as pd
import pytest
from rank_programs import program

from tracekit.analyzers.core import t_quantile
from tracekit.analyzers.ranks.clocks import Clocks, arrivals
from tracekit.analyzers.ranks.own_parts import mean_interval
from tracekit.analyzers.ranks.simulate import critical_path, simulate, step_times, with_transfers


def clocks(ranks):
    return Clocks(0, np.zeros(ranks), np.zeros(ranks), 0.0, np.zeros(ranks, dtype=np.int64))


def calls(*rows, kind="all-reduce"):
    """Return rows of call, rank, start and end."""
    return pd.DataFrame(rows, columns=["call", "rank", "start_ns", "end_ns"]).assign(kind=kind)


def test_those_who_are_there_wait_for_those_who_are_not():
    """Arrivals at 0, 10 and 30: rank 0 waits 10 for ranks 1 and 2, then ranks 0 and 1 wait 20 each for rank 2."""
    timed = arrivals(calls((0, 0, 0, 35), (0, 1, 10, 35), (0, 2, 30, 35)), clocks(3))
    assert timed["wait"].tolist() == [30, 20, 0]
    assert timed["imposed"].tolist() == [0, 5, 45]
    assert timed["transfer"].tolist() == [5, 5, 5]


def test_an_arrival_is_a_duration_before_the_common_end():
    """The clock of rank 1 is 1,000 ahead: its duration says when it came, compared with that of rank 0."""
    timed = arrivals(calls((0, 0, 0, 30), (0, 1, 1020, 1030)), clocks(2))
    assert timed["wait"].tolist() == [20, 0]


def test_a_broadcast_is_timed_by_clocks():
    """Its root may leave before the others have come."""
    timed = arrivals(calls((0, 0, 0, 5), (0, 1, 20, 30), kind="broadcast"), clocks(2))
    assert timed["wait"].tolist() == [20, 0]


SLOW = program(np.array([[10.0, 20.0], [10.0, 50.0]]), [5, 5], [30, 60])
"""Rank 1 takes 40 between the two calls; rank 0 takes 10."""


def test_a_step_lasts_as_long_as_its_longest_chain():
    assert simulate(SLOW).step_ns.tolist() == [10 + 5 + 40 + 5 + 10]


def test_without_the_straggler_the_step_is_shorter_by_what_it_costs():
    assert step_times(SLOW.like(1, 0)).tolist() == [40]
    assert step_times(SLOW.like(0, 1)).tolist() == [70]


def test_hosts_that_are_never_late_leave_the_work_of_their_devices():
    """Rank 1's device needs 10 of the 40 between the calls."""
    own, device = np.array([[10.0, 20.0], [10.0, 50.0]]), np.array([[10.0, 20.0], [10.0, 20.0]])
    late = program(own, [5, 5], [30, 60], device=device)
    assert simulate(late).step_ns.tolist() == [65]
    assert simulate(late.never_late()).step_ns.tolist() == [40]


def test_transfers_can_be_free():
    assert with_transfers(SLOW, 0.0).tolist() == [60]
    assert with_transfers(SLOW, np.array([1.0, 0.0])).tolist() == [65]


def test_ranks_that_share_their_work_evenly_wait_less():
    """Of 30 and 60, 15 move from one rank to the other: 0.75 × 50 until the call, its 5, and 1.5 × 10 after it."""
    uneven = program(np.array([[20.0], [50.0]]), [5], [30, 60])
    assert simulate(uneven).step_ns.tolist() == [65]
    assert simulate(uneven.with_less(np.array([[-15.0], [15.0]]), on_device=True)).step_ns.tolist() == [57.5]


def test_what_is_hidden_behind_computation_costs_nothing():
    hidden = program(np.array([[10.0, 20.0], [10.0, 20.0]]), [5, 5], [30, 30], blocks=False)
    assert simulate(hidden).step_ns.tolist() == [30]


def test_a_stream_runs_one_collective_after_the_other():
    """The second call waits for the first one's transfer although no computation does."""
    queued = program(np.array([[10.0, 12.0], [10.0, 12.0]]), [100, 1], [20, 20], blocks=False)
    assert simulate(queued).end.tolist() == [110, 111]


def test_the_critical_path_goes_through_the_straggler():
    path = critical_path(simulate(SLOW), np.array([0, 0]), [0, 1])
    assert path["kind"].tolist() == ["own", "transfer", "own", "transfer", "own"]
    assert path["rank"].tolist()[2] == 1
    assert path["duration_ns"].tolist() == [10, 5, 40, 5, 10]


@pytest.mark.parametrize(
    ("confidence", "degrees", "value"), [(0.975, 1, 12.706), (0.975, 7, 2.365), (0.995, 30, 2.750)]
)
def test_quantiles_are_those_of_the_tables(confidence, degrees, value):
    assert t_quantile(confidence, degrees) == pytest.approx(value, abs=1e-3)


def test_the_interval_of_a_mean():
    bounds = mean_interval(np.array([1.0, 2.0, 3.0]), 0.95)
    assert (bounds.low, bounds.expected, bounds.high) == pytest.approx(
        (2 - 4.303 / 3**0.5, 2, 2 + 4.303 / 3**0.5), abs=1e-3
    )
    assert mean_interval(np.array([1.0]), 0.95).low == -np.inf
