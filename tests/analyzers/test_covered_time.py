"""Compares intervals and nesting with brute force over every nanosecond, on random overlapping work."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analyzers.attribute import Nest, nearest
from tracekit.analyzers.attribute.intervals import idle_before_ns, newly_covered_ns, shared_ns, union_ns
from tracekit.analyzers.attribute.items import self_time

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 2)), min_size=1, max_size=25)


def arrays(spans):
    start, duration, track = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    return start, start + duration, track


def covered(spans, track=None):
    return {(s[2], t) for s in spans if track in (None, s[2]) for t in range(s[0], s[0] + s[1])}


def host_table(spans):
    rows = sorted(spans, key=lambda s: (s[2], s[0], -s[1]))
    start, end, thread = arrays(rows)
    return pd.DataFrame({"start_ns": start, "duration_ns": end - start, "thread": thread}), rows


@given(SPANS)
def test_newly_covered_time_sums_to_the_union_of_each_track(spans):
    start, end, track = arrays(spans)
    new = newly_covered_ns(start, end, track)
    assert (new >= 0).all()
    assert (new <= end - start).all()
    for one in set(track.tolist()):
        assert new[track == one].sum() == len(covered(spans, one))
    assert union_ns(start, end, track) == len(covered(spans))


@given(SPANS)
def test_shares_sum_to_the_union_exactly_and_each_nanosecond_is_shared_equally(spans):
    start, end, track = arrays(spans)
    share = shared_ns(start, end, track)
    running = Counter((line, t) for begin, length, line in spans for t in range(begin, begin + length))
    exact = [sum(Fraction(1, running[line, t]) for t in range(b, b + length)) for b, length, line in spans]
    assert share.dtype == np.int64
    assert ((share >= 0) & (share <= end - start)).all()
    for one in set(track.tolist()):
        assert share[track == one].sum() == len(covered(spans, one))
    assert all(abs(own - due) < 1 for own, due in zip(share.tolist(), exact, strict=True))


def test_a_share_is_exact_at_the_end_of_a_long_trace():
    """An interval that overlaps nothing keeps its duration to the nanosecond, a day after the first."""
    day = 86_400 * 10**9
    start = np.array([0, 1, day, day + 10, day + 20])
    end = np.array([7, 5, day + 10, day + 15, day + 23])
    assert shared_ns(start, end, np.zeros(5, dtype=np.int64)).tolist() == [5, 2, 10, 5, 3]


@given(SPANS)
def test_idle_before_is_the_uncovered_time_since_the_latest_end(spans):
    start, end, track = arrays(spans)
    idle = idle_before_ns(start, end, track)
    order = sorted(range(len(spans)), key=lambda i: (track[i], start[i], i))
    for position, i in enumerate(order):
        earlier = [end[j] for j in order[:position] if track[j] == track[i]]
        assert idle[i] == (max(0, start[i] - max(earlier)) if earlier else 0)


@given(SPANS, st.sampled_from([0, 3]))
def test_a_parent_is_the_tightest_range_that_contains(spans, slack):
    host, rows = host_table(spans)
    parents = Nest(host, np.ones(len(host), dtype=bool), slack_ns=slack).parents
    for i, (start, duration, track) in enumerate(rows):
        until = max(start + duration - slack, min(start + 1, start + duration))
        around = [j for j, (s, d, t) in enumerate(rows[:i]) if t == track and s <= start and until <= s + d]
        assert parents[i] == (around[-1] if around else -1)


@given(SPANS, st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 90)), min_size=1, max_size=20))
def test_around_is_the_last_started_range_still_open(spans, asked):
    spans = [(start, duration + 1, track) for start, duration, track in spans]
    host, rows = host_table(spans)
    nest = Nest(host, np.ones(len(host), dtype=bool))
    tracks, times = (np.array(column, dtype=np.int64) for column in zip(*asked, strict=True))
    for track, time, row_around in zip(tracks, times, nest.around(tracks, times), strict=True):
        still_open = [i for i, (s, d, t) in enumerate(rows) if t == track and s <= time < s + d]
        assert row_around == (still_open[-1] if still_open else -1)


@given(st.lists(st.tuples(st.integers(-1, 20), st.booleans()), min_size=1, max_size=20))
def test_nearest_ancestor(tree):
    parent = np.array([min(above, i - 1) for i, (above, _) in enumerate(tree)], dtype=np.int64)
    mask = np.array([wanted for _, wanted in tree])
    for row, nearest_row in enumerate(nearest(parent, mask)):
        while row >= 0 and not mask[row]:
            row = parent[row]
        assert nearest_row == row


@given(SPANS)
def test_own_time_counts_every_covered_nanosecond_once(spans):
    host, _ = host_table(spans)
    own, once = self_time(host, Nest(host, np.ones(len(host), dtype=bool)))
    assert once.sum() == len({t for _, t in covered(spans)})
    assert (once <= own).all()


def test_own_time_of_an_op_excludes_the_ops_inside_it():
    host, _ = host_table([(0, 100, 0), (10, 30, 0), (20, 10, 0), (50, 5, 0), (0, 40, 1)])
    own, once = self_time(host, Nest(host, np.ones(len(host), dtype=bool)))
    assert own.tolist() == [65, 20, 10, 5, 40]
    assert once.sum() == 100
