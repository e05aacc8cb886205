"""Hosts that are slower everywhere are told from late ones; small faults that nobody waits for are named."""

import math

import numpy as np
import pytest
from rank_programs import program

from tracekit.analyzers.ranks.own_parts import CLASSES, OwnParts, longest_pause, pace
from tracekit.analyzers.ranks.stragglers import MORE_WORK, costs

CALLS = 20
EVEN = np.arange(1.0, CALLS + 1)


def late(factor=1.0, pause=0.0):
    """Return times until each of the calls: each takes `factor` times as long, and one comes after a pause."""
    return EVEN * 10 * factor + pause * (EVEN > CALLS / 2)


def named(mine, *others, computed=50.0, extra=0.0, **classes):
    """Return (rank, class) of those named and the ranks with slower hosts, if rank 0 takes `mine`."""
    own = np.array([mine, *others])
    ends = own[:, -1:] + 10
    parts = {name: np.zeros_like(ends) for name in CLASSES} | {"compute": np.full_like(ends, computed)}
    for name, time in classes.items():
        parts[name.replace("_", " ")][0] = time
    parts["host"] = ends - sum(parts.values())
    job = program(own, [0.0] * CALLS, ends[:, 0])
    said = costs(job, OwnParts(ends, parts, {}, {}), {0: extra} if extra else {})
    return [(each.rank, each.of) for each in said.named], [rank for rank, _ in said.slower_hosts]


def test_a_pause_does_not_change_the_pace():
    own = np.array([late(1.5), late(), late(pause=100.0)])
    job = program(own, [0.0] * CALLS, own[:, -1])
    assert pace(job, 0, [1]) == pytest.approx(1.5)
    assert pace(job, 2, [1]) == pytest.approx(1.0)


def test_the_longest_pause_is_that_at_one_place():
    own = np.array([late(1.5), late(), late(pause=100.0)])
    job = program(own, [0.0] * CALLS, own[:, -1] + 10)
    assert longest_pause(job, 0, [1]) == pytest.approx(5.0), "15 for 10 between two calls"
    assert longest_pause(job, 2, [1]) == pytest.approx(100.0)


def test_few_calls_do_not_show_where_a_rank_is_slower():
    few = np.array([[10.0, 20.0], [10.0, 50.0]])
    assert math.isnan(pace(program(few, [5, 5], [30, 60]), 1, [0]))


def test_among_two_ranks_a_host_that_is_slower_everywhere_is_not_named():
    assert named(late(1.5), late()) == ([], [0])
    assert named(late(pause=100.0), late()) == ([(0, "")], []), "late at one place"


def test_two_hosts_may_differ_without_a_fault():
    assert named(late(pause=40.0), late()) == ([], []), "40 of 210"


def test_what_remains_beyond_additional_work_may_be_an_uneven_host():
    """The rank is 80 of 210 later, 35 of it by its work: less than half of it, but the rest is what hosts differ by."""
    assert named(late(pause=80.0), late(), extra=35.0) == ([(0, MORE_WORK)], [])
    assert named(late(pause=80.0), late(), extra=10.0) == ([(0, "")], []), "70 of 210"


def test_four_ranks_show_how_much_their_hosts_differ():
    assert named(late(1.5), late(), late(1.01), late(0.99)) == ([(0, "")], [])


def test_a_slow_loader_is_named_though_the_other_rank_is_later():
    assert named(late(pause=40.0), late(1.5), data_loading=40.0)[0] == [(0, "data loading")]


def test_additional_work_is_held_against_computation():
    """Two ranks that their hosts determine: 2 % of 50 are 1."""
    assert named(late(), late(), extra=1.1)[0] == [(0, MORE_WORK)]
    assert named(late(), late(), extra=0.9)[0] == []
