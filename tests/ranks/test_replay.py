"""Replays of jobs whose slowdown is known by hand, and of the published one."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import tracekit
from tests.ranks.operation_files import interleaved, one_forward_one_backward, pipeline
from tracekit.analyzers.core import InputError
from tracekit.cli import main
from tracekit.reports.document import render
from tracekit.reports.ranks import replayed, replayed_document

pytest.importorskip("pyarrow")
PUBLISHED = Path(__file__).parents[3] / "shared" / "ranks_published"


def seconds(kind, *_):
    return {"f": 0.010, "b": 0.020}[kind]


def replay_of(table, folder):
    table.to_parquet(folder / "a-name", index=False)
    return tracekit.ranks(folder / "a-name")


def test_a_slow_worker_costs_what_a_hand_computes(tmp_path):
    def slow_forward(kind, stage, rank, batch):
        return 0.030 if (kind, rank) == ("f", 1) else seconds(kind, stage, rank, batch)

    job = replay_of(pipeline([[("f", 0, 0), ("b", 0, 0)]], slow_forward), tmp_path)
    assert job.replayed_ns == pytest.approx(30e6 + 20e6 + 5e6)  # rank 0 waits for rank 1
    assert job.ideal_ns == pytest.approx(20e6 + 20e6 + 5e6)  # a mean forward, on both
    assert job.recorded_ns == pytest.approx(job.replayed_ns)
    (remedy,) = job.remedies
    assert job.workers["rank"][list(remedy.workers)].tolist() == [1]
    assert (remedy.of, remedy.recovered, remedy.speedup) == ("workers", pytest.approx(1), pytest.approx(55 / 45))
    slow = job.parts.set_index(["of", "name"])["slowdown"]
    assert slow["dp_rank", "1"] == pytest.approx(55 / 45) and slow["dp_rank", "0"] == pytest.approx(1)
    assert slow["operation", "forward-compute"] == pytest.approx(55 / 45)
    assert slow["operation", "backward-compute"] == pytest.approx(1)
    assert "Worker 1 (stage 0, data-parallel rank 1)" in render(replayed_document(job), "text")


@pytest.mark.parametrize(
    "programs",
    [one_forward_one_backward(4, 6), interleaved(2, 4, 2), interleaved(4, 8, 3)],
    ids=["1F1B", "2 chunks", "3 chunks"],
)
def test_the_replay_of_a_job_without_delays_takes_the_recorded_time(programs, tmp_path):
    noise = np.random.default_rng(1)
    job = replay_of(pipeline(programs, lambda *place: seconds(*place) * noise.uniform(1, 2)), tmp_path)
    assert job.replayed_ns == pytest.approx(job.recorded_ns)
    assert job.problems.empty


def test_equal_workers_are_no_stragglers(tmp_path):
    job = replay_of(pipeline(one_forward_one_backward(4, 6), seconds), tmp_path)
    assert job.slowdown == pytest.approx(1)
    assert replayed.headlines(job)[0].startswith("No straggler")
    assert not any(each["named"] for each in replayed.to_dict(job)["stragglers"])


@pytest.mark.parametrize("programs", [one_forward_one_backward(4, 8), interleaved(4, 8, 2)])
def test_a_long_stage_is_named(programs, tmp_path):
    def long_last(kind, stage, rank, batch):
        return seconds(kind, stage, rank, batch) * (2 if stage == 3 else 1)

    job = replay_of(pipeline(programs, long_last), tmp_path)
    assert (job.remedies[0].of, job.remedies[0].number) == ("stage", 3)
    assert job.remedies[0].recovered > 1
    assert "Stage 3 (ranks 6, 7)" in render(replayed_document(job), "text")


def test_one_worker_of_many_is_named_though_two_are_replaced(tmp_path):
    def one_slow(kind, stage, rank, batch):
        return seconds(kind, stage, rank, batch) * (1.5 if (stage, rank) == (1, 7) else 1)

    job = replay_of(pipeline(one_forward_one_backward(4, 6), one_slow, ranks=16), tmp_path)
    best = job.remedies[0]
    assert job.workers["slowest"].sum() == 2
    assert best.of == "workers" and best.recovered > 0.9
    assert job.workers["rank"][list(best.workers)].tolist() == [1 * 16 + 7]


def test_micro_batches_of_unequal_length_are_said(tmp_path):
    lengths = np.random.default_rng(2).uniform(0.5, 2, (2, 8))
    table = pipeline(one_forward_one_backward(2, 8), lambda k, s, r, batch: seconds(k, s, r, batch) * lengths[r, batch])
    job = replay_of(table, tmp_path)
    assert job.batches > 0.99
    assert any("unequal sequences" in line for line in replayed.headlines(job))


def test_delays_of_launches_are_no_stragglers(tmp_path):
    table = pipeline(one_forward_one_backward(2, 4), seconds)
    late = table.assign(start_ts=table["start_ts"] + 0.010 * (table["optype"] == "grads-reduce-scatter"))
    job = replay_of(late, tmp_path)
    assert job.slowdown == pytest.approx(1)
    assert job.recorded_ns == pytest.approx(job.replayed_ns + 10e6)


def test_lost_operations_are_said_and_change_little(tmp_path):
    def long_last(kind, stage, rank, batch):
        return seconds(kind, stage, rank, batch) * (2 if stage == 1 else 1)

    table = pipeline(one_forward_one_backward(2, 8), long_last)
    whole = replay_of(table, tmp_path).slowdown
    lost = table.drop(index=table.index[table["optype"].eq("forward-recv")][[3, 9]])
    job = replay_of(lost, tmp_path)
    assert job.problems.set_index("code").at["operations-unpaired", "count"] == 2
    assert job.slowdown == pytest.approx(whole, rel=0.02)


def test_what_cannot_be_used_is_left_out_and_said(tmp_path):
    table = pipeline(one_forward_one_backward(2, 4), seconds)
    bad = table.iloc[[0, 1, 2]].assign(duration=[np.nan, -1.0, np.inf])
    strange = table.iloc[[3]].assign(optype="=cmd()\x1b[31m")
    partial = table[(table["rank"] == 0) & (table["step"] == 0)].assign(step=9)
    job = replay_of(pd.concat([table, bad, strange, table.iloc[[5]], partial]), tmp_path)
    counts = job.problems.set_index("code")["count"]
    assert counts.to_dict() == {
        "operations-unusable": 3,
        "operations-unknown": 1,
        "operations-repeated": 1,
        "steps-partial": 1,
    }
    assert job.slowdown == pytest.approx(1)
    assert "\x1b" not in render(replayed_document(job), "text", colour=False) and "\x1b" not in render(
        replayed_document(job), "html"
    )


def test_steps_that_wait_in_a_circle_are_left_out(tmp_path):
    table = pipeline(one_forward_one_backward(2, 4), seconds)
    mixed = (table["step"] == 1) & table["optype"].eq("forward-send")
    table.loc[mixed, "seq_id"] = 3 - table.loc[mixed, "seq_id"]
    job = replay_of(table, tmp_path)
    assert job.problems["code"].tolist() == ["operations-circular"]
    assert job.by_step["step"].tolist() == [0]
    with pytest.raises(InputError, match="cannot be replayed"):
        replay_of(table[table["step"] == 1], tmp_path)


def test_optional_columns_may_be_missing(tmp_path):
    table = pipeline(one_forward_one_backward(4, 6), seconds)
    job = replay_of(table.drop(columns=["rank", "seq_id", "mc", "gmc"]), tmp_path)
    assert job.slowdown == pytest.approx(1)
    assert set(job.workers["rank"]) == {-1}


def test_operations_without_time_are_no_division_by_zero(tmp_path):
    table = pipeline(one_forward_one_backward(2, 2), seconds)
    job = replay_of(table.assign(duration=0.0, start_ts=0.0), tmp_path)
    assert replayed.to_dict(job)["slowdown"] == 1


def test_a_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "operations"
    pipeline(one_forward_one_backward(2, 2), seconds).to_parquet(path, index=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(200) + whole[300:])
    result = CliRunner().invoke(main, ["ranks", str(path)])
    assert result.exit_code == 1 and "bug" not in result.stderr and "Traceback" not in result.stderr
    path.write_bytes(b"PAR1 dp_rank stage step optype start_ts duration" + bytes([48, 0, 0, 0]) + b"PAR1")
    result = CliRunner().invoke(main, ["ranks", str(path)])
    assert result.exit_code == 1 and "bug" not in result.stderr


def test_the_command_writes_each_format(tmp_path):
    pipeline(one_forward_one_backward(2, 4), seconds).to_parquet(tmp_path / "operations", index=False)
    (tmp_path / "result.json").write_text("{}")

    def run(*arguments):
        result = CliRunner().invoke(main, ["ranks", str(tmp_path), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert json.loads(run("--format", "json"))["slowdown"] == 1
    assert run("--format", "csv", "--table", "parts").startswith("of,name,count,ideal_us,slowdown")
    for _ in range(2):  # its own outputs are not in the way
        assert "No straggler" in run("-o", str(tmp_path / "job") + "/")
    page = (tmp_path / "job" / "ranks.html").read_text()
    assert "No straggler" in page and "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    run("-o", str(tmp_path / "job.csv"))
    assert (tmp_path / "job.csv").read_text().startswith("rank,dp_rank,stage")
    assert CliRunner().invoke(main, ["ranks", str(tmp_path), "--against", str(tmp_path)]).exit_code == 2


def test_two_files_of_operations_are_refused(tmp_path):
    for name in ("one", "two"):
        pipeline(one_forward_one_backward(2, 2), seconds).to_parquet(tmp_path / name, index=False)
    with pytest.raises(InputError, match="2 jobs"):
        tracekit.ranks(tmp_path)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published job is not here")
def test_the_published_job_has_its_published_slowdown():
    published = json.loads((PUBLISHED / "result-ST.json").read_text())
    job = tracekit.ranks(PUBLISHED)
    assert job.slowdown == pytest.approx(published["blocking_slowdown"], rel=1e-4)
    theirs = {name: rows for name, rows in published.items() if name.startswith("blocking_decompose_by")}
    for of, name in (("stage", "stage"), ("dp_rank", "dp_rank"), ("operation", "optype")):
        ours = (
            job.parts[job.parts["of"] == of]
            .set_index("name")["slowdown"]
            .drop(["forward-transfer", "backward-transfer"], errors="ignore")
        )
        expected = pd.Series(theirs[f"blocking_decompose_by_{name}"])[ours.index]
        assert ours.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-4)
    recovered = {each.of: each.recovered for each in job.remedies}
    for of, file, key in (("workers", "mw", "Mw"), ("stage", "ms", "Ms")):
        assert recovered[of] == pytest.approx(json.loads((PUBLISHED / f"{file}-ST.json").read_text())[key], rel=1e-3)
    assert job.workers[["stage", "dp_rank"]].iloc[0].tolist() == [3, 1]
