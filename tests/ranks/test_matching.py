"""Matching the calls of ranks that are one call of the job."""

import pandas as pd
import pytest
from rank_summaries import call, summary

from tracekit.analyzers.core import InputError
from tracekit.analyzers.ranks import analyze_ranks
from tracekit.analyzers.ranks.matching import match


def counterparts(*ranks):
    """Return the matched sets of (rank, start in ms)."""
    matched = match(ranks, range(len(ranks)))
    rows = matched.calls.assign(start=matched.calls["start_ns"] // 1_000_000)
    return {frozenset(zip(part["rank"], part["start"], strict=True)) for _, part in rows.groupby("call")}, matched


def test_by_sequence_number_whatever_was_recorded_first():
    """The trace of rank 1 begins one call later."""
    a = summary(0, [call(10 * at, 10 * at + 1, sequence=at, group="0") for at in range(4)], groups=[("0", (0, 1))])
    b = summary(1, [call(10 * at, 10 * at + 1, sequence=at, group="0") for at in (1, 2, 3)], groups=[("0", (0, 1))])
    pairs, matched = counterparts(a, b)
    assert {frozenset([(0, 10 * at), (1, 10 * at)]) for at in (1, 2, 3)} <= pairs
    assert matched.missing.empty, "a recording that begins later lacks no call"


def test_by_order_of_each_size_where_threads_swap_calls():
    a = summary(0, [call(1, 2, bytes=8), call(3, 4, bytes=16)])
    b = summary(1, [call(1, 2, bytes=16), call(3, 4, bytes=8)])
    pairs, matched = counterparts(a, b)
    assert pairs == {frozenset([(0, 1), (1, 3)]), frozenset([(0, 3), (1, 1)])}
    assert matched.uneven.empty


def test_by_the_common_sequence_where_a_rank_lacks_a_call():
    a = summary(0, [call(at, at + 1, bytes=8 if at % 4 else 16) for at in range(0, 20, 2)])
    b = summary(1, [call(at, at + 1, bytes=8 if at % 4 else 16) for at in range(0, 20, 2) if at != 8])
    pairs, matched = counterparts(a, b)
    assert {frozenset([(0, at), (1, at)]) for at in range(0, 20, 2) if at != 8} <= pairs
    assert matched.missing[["rank", "count"]].values.tolist() == [[1, 1]]


def test_groups_that_communicate_at_the_same_time_lack_no_call():
    """The order of their calls differs from rank to rank, and the recording of one rank ends before its last call."""
    a = summary(
        0, [row for at in range(0, 60, 10) for row in (call(at, at + 1, bytes=8), call(at + 2, at + 3, bytes=16))]
    )
    late = [call(at, at + 1, bytes=8) for at in range(0, 60, 10)] + [
        call(at + 8, at + 9, bytes=16) for at in range(0, 50, 10)
    ]
    early = [call(at + 4, at + 5, bytes=8) for at in range(0, 60, 10)] + [
        call(at, at + 1, bytes=16) for at in range(0, 60, 10)
    ]
    pairs, matched = counterparts(a, summary(1, late), summary(2, early))
    assert frozenset([(0, 10), (1, 10), (2, 14)]) in pairs and frozenset([(0, 12), (1, 18), (2, 10)]) in pairs
    assert matched.missing.empty


def test_another_size_at_the_same_number_is_uneven():
    groups = [("0", (0, 1, 2))]
    ranks = [summary(n, [call(1, 2, sequence=5, group="0", bytes=8 + 8 * (n == 2))], 3, groups) for n in range(3)]
    _, matched = counterparts(*ranks)
    assert matched.uneven[["rank", "count"]].values.tolist() == [[2, 1]]


STAGES = [("pipeline", (4, 5, 6))]


def between(number, *ways):
    """Return the summary of a stage that sends (+) to and receives (-) from others, which it numbers by itself."""
    rows = [
        call(
            10 * start,
            10 * start + 1,
            sequence=at,
            group="pipeline",
            kind="send" if to > 0 else "receive",
            peer=abs(to),
        )
        for at, (start, to) in enumerate(ways)
    ]
    return summary(number, rows, 8, STAGES)


def test_sends_are_matched_by_their_order_from_source_to_target():
    """Two micro-batches through three stages, forward and back."""
    first = between(4, (0, 5), (1, 5), (4, -5), (6, -5))
    middle = between(5, (0, -4), (1, 6), (2, -4), (3, 6), (4, -6), (5, 4), (6, -6), (7, 4))
    last = between(6, (1, -5), (3, -5), (4, 5), (6, 5))
    matched = match([first, middle, last], [4, 5, 6])
    starts = {tuple(part["start_ns"] // 10_000_000) for _, part in matched.calls.groupby("call")}
    assert starts == {(0, 0), (1, 2), (1, 1), (3, 3), (4, 4), (4, 5), (6, 6), (6, 7)}
    assert matched.missing.empty, "the other stages take no part in a send"


def test_a_send_that_was_not_received_is_missing():
    matched = match([between(4, *[(at, 5) for at in range(5)]), between(5, (0, -4), (1, -4), (4, -4))], [4, 5])
    assert matched.missing["count"].sum() == 0, "the last two may be outside the recording"
    three = match([between(4, (0, 5)), between(5, (1, -6)), between(6, (1, 5))], [4, 5, 6])
    assert three.missing[["rank", "count"]].values.tolist() == [[1, 1]]


def test_all_to_alls_may_differ_in_size():
    ranks = [summary(n, [call(1, 2, kind="all-to-all", bytes=8 * (n + 1))]) for n in range(2)]
    pairs, matched = counterparts(*ranks)
    assert pairs == {frozenset([(0, 1), (1, 1)])} and matched.uneven.empty


def test_groups_of_one_name_and_other_ranks_are_others():
    groups = ([("1", (0, 1))], [("1", (0, 1))], [("1", (2, 3))], [("1", (2, 3))])
    ranks = [summary(n, [call(n, n + 1, group="1", sequence=0)], 4, groups[n]) for n in range(4)]
    pairs, matched = counterparts(*ranks)
    assert pairs == {frozenset([(0, 0), (1, 1)]), frozenset([(2, 2), (3, 3)])}
    assert [group.ranks for group in matched.groups] == [(0, 1), (2, 3)]


def test_a_rank_that_makes_calls_of_a_group_is_in_it_whatever_is_written():
    ranks = [summary(n, [call(n, n + 1, group="0", sequence=0)], 3, [("0", (0, 1))]) for n in range(3)]
    pairs, matched = counterparts(*ranks)
    assert pairs == {frozenset([(0, 0), (1, 1), (2, 2)])} and matched.missing.empty


def test_a_send_meets_the_receive():
    a = summary(0, [call(1, 5, kind="send", group="p", sequence=0)], groups=[("p", (0, 1))])
    b = summary(1, [call(4, 5, kind="receive", group="p", sequence=0)], groups=[("p", (0, 1))])
    pairs, matched = counterparts(a, b)
    assert pairs == {frozenset([(0, 1), (1, 4)])} and set(matched.calls["kind"]) == {"send-receive"}


def test_ranks_without_a_step_in_common_are_refused():
    ranks = [summary(0, [call(1, 2)], steps=1), summary(1, [call(1, 2)], steps=0)]
    with pytest.raises(InputError, match="no step in common"):
        analyze_ranks(ranks, range(2))


def test_ranks_without_collectives_are_said_to_have_none():
    ranks = [summary(n, [call(1, 2, group=str(n))], groups=[(str(n), (n,))]) for n in range(2)]
    job = analyze_ranks(ranks, range(2))
    assert {"no-collectives", "clocks-not-aligned"} <= set(job.problems["code"])
    assert job.stragglers == () and isinstance(job.collectives, pd.DataFrame)
