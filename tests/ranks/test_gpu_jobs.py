"""One step of two jobs of two H200 that train GPT-2 with DistributedDataParallel (benchmarks/ranks_gpu/record.py)."""

from pathlib import Path

import numpy as np
import pytest

import tracekit
from tracekit.analyzers.ranks.stragglers import _beyond_chance

JOBS = Path(__file__).parents[2] / "examples" / "ranks"


@pytest.fixture(scope="module")
def jobs():
    return {name: tracekit.ranks(JOBS / f"h200-ddp-{name}-2") for name in ("healthy", "slow-loader")}


def test_the_planted_fault_is_named_and_nothing_in_the_healthy_job(jobs):
    assert jobs["healthy"].stragglers == ()
    (straggler,) = jobs["slow-loader"].stragglers
    assert (straggler.rank, straggler.reason.cause) == (0, "data loading")
    assert straggler.reason.excess_ns == pytest.approx(40e6, rel=0.1), "its loader sleeps for 40 ms"


def test_the_gradients_of_gpt2_are_reduced_over_nvlink(jobs):
    (group,) = jobs["healthy"].groups.itertuples()
    assert (group.parallelism, group.size) == ("data", 2)
    assert group.bytes == 4 * 124_439_808
    last = jobs["healthy"].collectives.nlargest(1, "bytes").iloc[0]
    assert last["bus_bandwidth"] == pytest.approx(285.9e9, rel=0.1), "NCCL's own timing at that size"


def test_few_steps_name_a_rank_only_if_it_is_late_in_each():
    """If a rank is late in one of two steps, it is not named."""
    once, always = np.array([[60.0, 1.0], [0.0, 0.0]]), np.array([[30.0, 31.0], [0.0, 0.0]])
    assert _beyond_chance(once, 100.0).tolist() == [False, False]
    assert _beyond_chance(always, 100.0).tolist() == [True, False]
