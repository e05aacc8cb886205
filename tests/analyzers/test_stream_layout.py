"""Kernels and collectives on two streams of a GPU."""

import numpy as np
import pytest

from tracekit.analyzers.predict import Issued, stream_layout


def issued(*work, **columns):
    """Work of 10 ns of host time each; rows are (duration, whether it is a collective)."""
    count = len(work)
    usual = {
        "host": np.full(count, 10.0),
        "work": np.array([each[0] for each in work], dtype=float),
        "collective": np.array([each[1] for each in work], dtype=bool),
        "early": np.zeros(count, dtype=bool),
        "waits": np.full(count, -1),
        "sync": np.zeros(count, dtype=bool),
    }
    return Issued(**usual | columns)


def laid_out(*work, beside=(stream_layout.KERNEL_BESIDE, stream_layout.COLLECTIVE_BESIDE), **columns):
    times = stream_layout.lay_out(issued(*work, **columns), launch_latency_ns=0.0, gap_ns=0.0, beside=beside)
    return list(zip(times.start.tolist(), times.end.tolist(), strict=True))


def test_a_collective_waits_for_the_kernels_before_it_and_slows_those_beside_it():
    first, reduced, beside = laid_out((100, 0), (25, 1), (100, 0))
    assert first == (10, 110) and reduced == (110, 110 + 25 * stream_layout.COLLECTIVE_BESIDE)
    slowed = 25 * stream_layout.COLLECTIVE_BESIDE
    assert beside == (110, 110 + slowed + 100 - slowed / stream_layout.KERNEL_BESIDE)


def test_a_gather_on_a_stream_of_its_own_waits_for_no_kernel():
    assert laid_out((100, 0), (20, 1), early=np.array([False, True]))[1][0] == 20


def test_a_kernel_waits_for_the_collective_that_it_reads():
    reduced, kernel = laid_out((50, 1), (10, 0), waits=np.array([-1, 0]))
    assert (reduced, kernel) == ((10, 60), (60, 70))


def test_the_host_waits_for_both_streams():
    times = laid_out((100, 0), (50, 1), (5, 0), sync=np.array([False, True, False]))
    assert times[2][0] > times[1][1]


def test_collectives_run_one_after_the_other():
    assert laid_out((10, 0), (60, 1), (20, 1))[1:] == [(20, 80), (80, 100)]


@pytest.mark.parametrize("slowed", [1.0, 1.5])
def test_kernels_are_slower_only_while_a_collective_lasts(slowed):
    start, end = laid_out((10, 0), (30, 1), (100, 0), beside=(slowed, 1.0))[2]
    assert start == 30 and end == pytest.approx(130 + 20 * (1 - 1 / slowed)), "the collective ends at 50"


def test_repeated_work_waits_for_the_collective_of_its_own_repetition():
    twice = issued((50, 1), (10, 0), waits=np.array([-1, 0])).repeated(2)
    assert twice.waits.tolist() == [-1, 0, -1, 2] and len(twice.work) == 4
