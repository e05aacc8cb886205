"""Aligning clocks by the ends of collectives."""

import numpy as np
import pandas as pd
import pytest

from tracekit.analyzers.ranks.clocks import align

EPOCH = 1_700_000_000_000_000_000


def calls(ends, group_of_rank=None, jitter=2_000.0, offset=None, drift=None, kind="all-reduce"):
    """Return a row per rank and call. A group ends together, up to jitter; each rank writes times of its own clock."""
    random = np.random.default_rng(0)
    ranks = len(offset)
    groups = group_of_rank or [[list(range(ranks))]] * len(ends)
    rows = []
    for call, end in enumerate(ends):
        for part, members in enumerate(groups[call]):
            for rank in members:
                at = end + abs(random.normal(0, jitter))
                stamped = EPOCH + round(at * (1 + drift[rank])) + offset[rank]
                rows.append((call * 10 + part, rank, kind, stamped - 50_000, stamped))
    return pd.DataFrame(rows, columns=["call", "rank", "kind", "start_ns", "end_ns"])


def test_offsets_and_drifts_are_found():
    offset, drift = [0, 5_000_000, -70_000_000], [0.0, 30e-6, -50e-6]
    rows = calls(np.arange(1, 60) * 100e6, offset=offset, drift=drift)
    clocks = align(rows, [0, 1, 2])
    assert (clocks.drift - clocks.drift[0]) * 1e6 == pytest.approx([0, 30, -50], abs=0.5)
    end = clocks.corrected(rows["rank"].to_numpy(), rows["end_ns"].to_numpy())
    assert np.ptp(end.reshape(-1, 3), axis=1).max() < 20_000
    assert clocks.error_ns < 6_000


def test_no_drift_is_made_of_noise():
    clocks = align(calls(np.arange(1, 40) * 1e6, jitter=200_000.0, offset=[0, 0], drift=[0.0, 0.0]), [0, 1])
    assert (clocks.drift == 0).all()


def test_ranks_of_a_host_share_a_clock():
    clocks = align(calls(np.arange(1, 30) * 1e6, offset=[0, 0, 9_000, 9_000], drift=[0.0] * 4), [0, 0, 1, 1])
    assert clocks.offset_ns[0] == clocks.offset_ns[1] and clocks.offset_ns[2] == clocks.offset_ns[3]
    assert clocks.offset_ns[2] - clocks.offset_ns[0] == pytest.approx(9_000, abs=1_500)


def test_hosts_of_one_name_with_clocks_apart_are_told_apart():
    clocks = align(calls(np.arange(1, 30) * 1e6, offset=[0, 3_000_000], drift=[0.0, 0.0]), [0, 0])
    assert clocks.offset_ns[1] - clocks.offset_ns[0] == pytest.approx(3_000_000, abs=2_000)


def test_clocks_are_aligned_through_other_ranks():
    """Ranks 0 and 3 never meet, but 0 meets 1, 1 meets 2 and 2 meets 3."""
    groups = [[[0, 1], [2, 3]] if call % 2 else [[1, 2]] for call in range(40)]
    offset = [0, 1_000_000, 2_000_000, 40_000_000]
    clocks = align(calls(np.arange(1, 41) * 1e6, groups, offset=offset, drift=[0.0] * 4), range(4))
    assert clocks.offset_ns - clocks.offset_ns[0] == pytest.approx(offset, abs=3_000)
    assert len(set(clocks.component)) == 1


def test_ranks_that_share_no_collectives_are_apart():
    groups = [[[0, 1], [2, 3]]] * 10
    clocks = align(calls(np.arange(1, 11) * 1e6, groups, offset=[0] * 4, drift=[0.0] * 4), range(4))
    assert len(set(clocks.component)) == 2


def test_one_shared_collective_is_too_few():
    one, two = (
        align(calls(np.arange(1, 1 + count) * 1e6, offset=[0, 0], drift=[0.0, 0.0]), range(2)) for count in (1, 2)
    )
    assert len(set(one.component)) == 2
    assert len(set(two.component)) == 1 and two.error_ns < 3_000


def test_stages_that_only_send_are_aligned_on_that():
    clocks = align(calls(np.arange(1, 30) * 1e6, offset=[0, 9_000], drift=[0.0, 0.0], kind="send-receive"), range(2))
    assert clocks.offset_ns[1] - clocks.offset_ns[0] == pytest.approx(9_000, abs=2_000)


def test_broadcasts_say_nothing_about_clocks():
    clocks = align(calls(np.arange(1, 30) * 1e6, offset=[0, 9_000], drift=[0.0, 0.0], kind="broadcast"), range(2))
    assert (clocks.component == -1).all() and np.isnan(clocks.error_ns)
