"""A slice of the mutated traces; `python -m tests.fuzz` reads thousands."""

import pytest

from .check import run_one


@pytest.mark.parametrize("first", range(0, 80, 10))
def test_mutated_traces(tmp_path, first):
    for seed in range(first, first + 10):
        run_one(seed, tmp_path)
