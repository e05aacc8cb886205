"""One step of jobs of two and four H200: GPT-2 under DDP, Llama sharded and tensor parallel."""

from pathlib import Path

import numpy as np
import pytest

import tracekit
from tracekit.analyzers.ranks.stragglers import _exceeds_chance

JOBS = Path(__file__).parents[2] / "examples" / "ranks"


@pytest.fixture(scope="module")
def jobs():
    folders = {"healthy": "ddp-healthy-2", "slow-loader": "ddp-slow-loader-2", "two of four": "ddp-slow-loader-4"}
    folders |= {"fsdp": "fsdp-slow-loader-2", "tensor": "tensor-healthy-2"}
    return {name: tracekit.ranks(JOBS / f"h200-{folder}") for name, folder in folders.items()}


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


def test_gradients_are_slower_beside_computation(jobs):
    """Beside the last bucket, only the copies out of the other buckets run."""
    calls = jobs["healthy"].collectives
    last, others = calls.nlargest(1, "bytes").iloc[0], calls[calls["bytes"] < calls["bytes"].max()]
    assert 0.5 < last["overlap"] < 0.7 and others["overlap"].between(0.97, 1).all()
    assert others["bus_bandwidth"].max() < 0.5 * last["bus_bandwidth"]


def test_two_ranks_of_four_name_the_slower_loader(jobs):
    (straggler,) = jobs["two of four"].stragglers
    assert (straggler.rank, straggler.reason.cause) == (2, "data loading")
    assert jobs["two of four"].problems["code"].tolist() == ["ranks-missing"]


def test_sharded_training_whose_host_is_late_names_its_loader(jobs):
    (straggler,) = jobs["fsdp"].stragglers
    assert (straggler.rank, straggler.reason.cause) == (1, "data loading")
    assert straggler.reason.excess_ns == pytest.approx(40e6, rel=0.1)
    (group,) = jobs["fsdp"].groups.itertuples()
    assert group.parallelism == "fsdp" and group.regathered > 0.7, "weights are gathered again in the backward pass"


def test_tensor_parallel_inference_on_uneven_hosts_names_nobody(jobs):
    assert jobs["tensor"].stragglers == ()
    (group,) = jobs["tensor"].groups.itertuples()
    assert (group.parallelism, group.calls) == ("tensor", 99), "two a layer and one for the logits, in three passes"
    largest = jobs["tensor"].collectives.nlargest(8, "bytes")
    assert largest["bus_bandwidth"].median() == pytest.approx(278.8e9, rel=0.1), "NCCL's own timing at that size"


@pytest.mark.parametrize(
    ("job", "rank"),
    [("ddp-more-work-2", 1), ("fsdp-more-work-2", 0), ("tensor-more-work-2", 1), ("fsdp-healthy-2", None)],
)
def test_one_step_shows_which_rank_has_more_products(job, rank):
    """The hosts of all four differ: by 19 ms of a step of 95 ms in the first one."""
    named = [(each.rank, each.reason.cause, each.reason.op) for each in tracekit.ranks(JOBS / f"h200-{job}").stragglers]
    assert named == ([] if rank is None else [(rank, "more work", "aten::mm")])


@pytest.mark.parametrize("name", ["healthy", "slow-loader", "fsdp", "tensor"])
def test_the_simulated_steps_take_as_long_as_the_recorded_ones(jobs, name):
    assert jobs[name].simulated_share == pytest.approx(1, abs=0.01)


def test_few_steps_name_a_rank_only_if_it_is_late_in_each():
    """If a rank is late in one of two steps, it is not named."""
    once, always = np.array([[60.0, 1.0], [0.0, 0.0]]), np.array([[30.0, 31.0], [0.0, 0.0]])
    assert _exceeds_chance(once, 100.0, [[1], [0]]).tolist() == [False, False]
    assert _exceeds_chance(always, 100.0, [[1], [0]]).tolist() == [True, False]
