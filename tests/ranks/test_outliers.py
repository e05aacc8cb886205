"""Ranks that exceed their peers by more than ranks usually differ."""

import numpy as np

from tracekit.analyzers.ranks.own_parts import outliers

EVERYONE = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_four_ranks_show_how_much_they_differ():
    assert outliers(np.array([0.0, 0.1, -0.1, 5.0]), EVERYONE).tolist() == [False, False, False, True]
    assert not outliers(np.array([-3.0, 1.0, -1.0, 3.0]), EVERYONE).any()


def test_three_ranks_do_not():
    assert outliers(np.array([-1.0, 0.0, 1.0]), [[1, 2], [0, 2], [0, 1]]).all()


def test_the_only_peer_of_a_late_rank_does_not_make_its_excess_usual():
    """Stages of a pipeline: the two in the middle are compared with each other."""
    peers = [[1, 2, 3], [2], [1], [0, 1, 2]]
    assert outliers(np.array([0.02, 5.0, -5.0, -0.01]), peers).tolist() == [False, True, False, False]
