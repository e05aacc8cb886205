"""Recorded jobs of two and four gloo ranks, healthy and with a planted fault."""

from pathlib import Path

import numpy as np
import pytest

import tracekit

JOBS = Path(__file__).parents[2] / "examples" / "ranks"
CAUSES = {
    "more-work": "more work",
    "uneven-batch": "more work",
    "slow-loader": "data loading",
    "sleep": "host",
}


@pytest.fixture(scope="module")
def jobs():
    return {folder.name: tracekit.ranks(folder) for folder in sorted(JOBS.iterdir())}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("fault", CAUSES)
def test_the_rank_and_the_cause_are_named(jobs, fault, world):
    (straggler,) = jobs[f"{fault}-{world}"].stragglers
    assert (straggler.rank, straggler.reason.cause) == (world - 1, CAUSES[fault])
    assert 0.1 < straggler.cost_share.low < straggler.cost_share.expected < straggler.cost_share.high < 1


@pytest.mark.parametrize("world", [2, 4])
def test_evidence_says_what_there_is_more_of(jobs, world):
    (work,), (batch,) = (jobs[f"{fault}-{world}"].stragglers for fault in ("more-work", "uneven-batch"))
    assert (work.reason.op, work.reason.layer, work.reason.detail) == ("aten::mm", "extra", "calls")
    assert (batch.reason.family, batch.reason.detail) == ("gemm", "flops")
    assert batch.reason.calls_ratio == pytest.approx(1.0) and batch.reason.flops_ratio == pytest.approx(12, rel=0.05)


@pytest.mark.parametrize("name", ["healthy-1-2", "healthy-4-2", "healthy-1-4", "healthy-4-4"])
def test_nobody_is_named_in_a_healthy_job(jobs, name):
    assert jobs[name].stragglers == () and jobs[name].slow_link is None
    assert set(jobs[name].problems["code"]) == {"no-device-events"}


@pytest.mark.parametrize("world", [2, 4])
def test_a_skewed_clock_is_corrected_and_nobody_is_named(jobs, world):
    job = jobs[f"skewed-clock-{world}"]
    assert job.stragglers == () and "clocks-apart" in set(job.problems["code"])
    offset = job.ranks["clock_offset_ns"].to_numpy()
    assert offset[-1] - np.median(offset[:-1]) == pytest.approx(4e6, abs=0.1e6)


@pytest.mark.parametrize("world", [2, 4])
def test_a_missing_call_is_a_problem_of_its_rank(jobs, world):
    problems = jobs[f"missing-call-{world}"].problems.set_index("code")
    assert problems.at["collective-missing", "count"] == 1
    assert f"rank {world - 1} (1 all-reduce" in problems.at["collective-missing", "message"]
    assert jobs[f"missing-call-{world}"].stragglers == ()


def test_what_ranks_impose_is_what_they_wait(jobs):
    for job in jobs.values():
        assert job.ranks["imposed_ns"].sum() == pytest.approx(job.ranks["waiting_ns"].sum())
        assert job.waiting_ns == pytest.approx(job.ranks["waiting_ns"].mean())
        assert (job.by_step[["imposed_ns", "waiting_ns"]] >= 0).all().all()


def test_the_parts_of_a_step_sum_to_it(jobs):
    parts = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"]
    for job in jobs.values():
        assert (job.by_step[parts].sum(axis=1) == job.by_step["wall_ns"]).all()


def test_the_critical_path_tiles_the_steps(jobs):
    for job in jobs.values():
        path = job.critical_path
        ends = path["start_ns"] + path["duration_ns"]
        assert (path["duration_ns"] > 0).all()
        assert np.allclose(ends[:-1], path["start_ns"][1:], rtol=0, atol=1)
        assert path["duration_ns"].sum() == pytest.approx(job.step_ns * job.steps * job.simulated_share)
        assert 0.9 < job.simulated_share < 1.1


def test_mending_a_straggler_gives_what_it_costs(jobs):
    for job in jobs.values():
        for straggler in job.stragglers:
            gain = next(each for each in job.what_ifs if each.change == "mend" and each.rank == straggler.rank)
            assert gain.speedup == pytest.approx(1 / (1 - straggler.cost_share.expected))
