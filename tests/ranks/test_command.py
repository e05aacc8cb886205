"""`tracekit ranks` and `tracekit.ranks`: inputs, outputs, and what goes wrong."""

import gzip
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import validate

import tracekit
from tracekit.cli import main
from tracekit.jobs import RankFiles, is_job, outputs
from tracekit.jobs.rank_files import rank_files, rank_numbers
from tracekit.reports.ranks import export

JOBS = Path(__file__).parents[2] / "examples" / "ranks"
SLOW = JOBS / "slow-loader-2"
HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the outputs of a job in which an op, a group and a host have hostile names."""
    folder = tmp_path_factory.mktemp("job")
    for number in range(2):
        text = gzip.decompress((SLOW / f"rank-{number}.json.gz").read_bytes()).decode()
        text = text.replace("aten::mm", json.dumps(HOSTILE)[1:-1]).replace(
            '"pg_name":"0"', f'"pg_name":{json.dumps(HOSTILE)}'
        )
        text = text.replace('"host_name":"node-0"', '"host_name":"secret-host"')
        (folder / f"rank-{number}.json").write_text(text)
    (folder / "rank-9.json").write_text("{}")
    run = CliRunner().invoke(main, ["ranks", str(folder), "--no-cache", "-o", str(folder / "out")])
    assert run.exit_code == 0, run.output
    return run, folder / "out"


def test_the_answer_stands_first(written):
    lines = written[0].stdout.splitlines()
    assert lines[0].startswith("2 ranks, 1 host; clocks ±")
    assert lines[1].startswith("Rank 1 (host 0) costs ")
    assert "longer per step for its data." in " ".join(written[0].stdout.split())
    assert any(line.startswith("Next: fix rank 1, ") for line in lines)


def test_a_trace_that_cannot_be_read_is_a_problem(written):
    assert "1 trace could not be read" in " ".join(written[0].stdout.split())


def test_the_data(written):
    data = json.loads((written[1] / "ranks.json").read_text())
    (straggler,) = data["stragglers"]
    number = {"type": "number"}
    share = {"type": "object", "required": ["low", "expected", "high"], "additionalProperties": number}
    shape = {"required": ["rank", "cost_share", "cause", "layer", "evidence"], "properties": {"cost_share": share}}
    validate(straggler, shape)
    assert (straggler["rank"], straggler["cause"]) == (1, "data loading")
    assert [row["rank"] for row in data["ranks"]] == [0, 1] and data["collectives"] and data["groups"]


def test_nothing_hostile_and_no_host_gets_out(written):
    run, folder = written
    page, data = ((folder / name).read_text() for name in ("ranks.html", "ranks.json"))
    assert "<script>alert" not in page and "Content-Security-Policy" in page
    for shown in (run.output, page, data):
        assert "\x1b" not in shown and "secret-host" not in shown


def test_the_page_holds_its_drawings(written):
    page = (written[1] / "ranks.html").read_text()
    heatmap, matrix = page.split("Waits by group and rank", 1)
    assert heatmap.count('<td class="late"') + heatmap.count('<td class="early"') == 2 * 10
    data = json.loads((written[1] / "ranks.json").read_text())
    assert matrix.count('<td class="late"') == 2 * len(data["groups"])
    assert page.count('<rect class="move"') >= 4 and 'class="histogram"' in page


def test_the_page_links_the_reports_beside_traces_and_says_how_to_write_the_others(tmp_path):
    job = tracekit.ranks(SLOW)
    for number in (0, 1):
        (tmp_path / f"rank {number}").mkdir()
        (tmp_path / f"rank {number}" / "run.json").touch()
    (tmp_path / "rank 1" / "report.html").touch()
    answer = RankFiles(job, {number: str(tmp_path / f"rank {number}" / "trace.json.gz") for number in (0, 1)})
    assert outputs.links_to_reports(answer, tmp_path / "out") == {1: "../rank%201/report.html"}
    shown = outputs.page_of(answer, tmp_path / "out", str(tmp_path))
    assert '<a href="../rank%201/report.html">report</a>' in shown
    assert "tracekit analyze &#39;rank 0/trace.json.gz&#39; -o &#39;rank 0/report.html&#39;" in shown


def test_a_report_that_the_page_asks_for_is_linked_by_the_next_page(tmp_path, monkeypatch):
    job = tmp_path / "job"
    shutil.copytree(SLOW, job)
    monkeypatch.chdir(job)
    command = ["ranks", str(job), "-o", str(tmp_path / "ranks.html"), "--no-cache"]
    assert CliRunner().invoke(main, command).exit_code == 0
    (asked,) = re.findall(r"<code>tracekit (analyze rank-1.*?)</code>", (tmp_path / "ranks.html").read_text())
    assert CliRunner().invoke(main, asked.split()).exit_code == 0
    assert CliRunner().invoke(main, command).exit_code == 0
    assert '<a href="job/rank-1.html">report</a>' in (tmp_path / "ranks.html").read_text()


def test_the_archive_holds_the_slow_and_the_fast_rank(written):
    with tarfile.open(written[1] / "ranks.tar") as archive:
        names = archive.getnames()
        assert names == ["slow-rank-1.json.gz", "fast-rank-0.json.gz"]
        for name in names:
            trace = json.loads(gzip.decompress(archive.extractfile(name).read()))
            assert len(trace["traceEvents"]) > 100 and "secret-host" not in json.dumps(trace)


def test_a_table_that_needs_pyarrow_is_said_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "to_parquet", lambda _: None)
    run = CliRunner().invoke(main, ["ranks", str(SLOW), "-o", str(tmp_path)])
    assert run.exit_code == 0
    assert "ranks.parquet needs pyarrow, which is not installed: pip install" in run.stderr


def test_outputs_of_another_job_are_kept(written):
    run = CliRunner().invoke(main, ["ranks", str(JOBS / "sleep-2"), "-o", str(written[1])])
    assert run.exit_code == 1 and "exists, and is not the ranks of this input" in run.output


def test_tables_as_csv():
    run = CliRunner().invoke(main, ["ranks", str(SLOW), "--format", "csv", "--table", "by_step"])
    assert run.exit_code == 0 and run.stdout.splitlines()[0].startswith("rank,step,wall_us,compute_us")
    assert len(run.stdout.splitlines()) == 1 + 2 * 10


def test_two_jobs_are_compared():
    run = CliRunner().invoke(main, ["ranks", str(JOBS / "healthy-1-2"), "--against", str(SLOW)])
    said = " ".join(run.stdout.split())
    assert run.exit_code == 0 and "as fast as the other; held up before by rank 1 (data loading), now by none." in said
    run = CliRunner().invoke(main, ["ranks", str(JOBS / "healthy-1-2"), "--against", str(SLOW), "--format", "json"])
    rows = {row["part"]: row for row in json.loads(run.stdout)["against"]}
    parts = [rows[name] for name in ("compute", "exposed communication", "exposed copies", "idle")]
    for side in ("before_us", "after_us", "change_us"):
        assert sum(row[side] for row in parts) == pytest.approx(rows["step of a mean rank"][side], abs=0.01)


def test_compare_takes_two_jobs(tmp_path):
    jobs = [str(SLOW), str(JOBS / "healthy-1-2")]
    run = CliRunner().invoke(main, ["compare", *jobs])
    assert run.exit_code == 0 and "held up before by rank 1 (data loading), now by none." in " ".join(
        run.stdout.split()
    )
    run = CliRunner().invoke(main, ["compare", *jobs, "-o", str(tmp_path / "change.json")])
    change = json.loads((tmp_path / "change.json").read_text())
    assert run.exit_code == 0 and change["against"][0]["part"] == "compute" and change["world_size"] == 2
    run = CliRunner().invoke(main, ["compare", *jobs, "--format", "csv"])
    assert run.exit_code == 2 and "as text or json" in run.stderr


def test_a_folder_of_a_run_is_no_job(tmp_path):
    for name in ("trace.json.gz", "other.json.gz"):
        (tmp_path / name).write_bytes((SLOW / "rank-0.json.gz").read_bytes())
    assert is_job(str(SLOW)) and not is_job(str(tmp_path)) and not is_job(str(SLOW / "rank-0.json.gz"))


def test_files_a_pattern_and_a_folder_of_runs_are_the_same(tmp_path):
    files = [str(SLOW / f"rank-{number}.json.gz") for number in range(2)]
    for number, file in enumerate(files):
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / "trace.json.gz").write_bytes(Path(file).read_bytes())
    assert rank_files(files) == rank_files(SLOW) == rank_files(str(SLOW / "*.gz")) == files
    assert [Path(path).parent.name for path in rank_files(tmp_path)] == ["run-0", "run-1"]


def test_a_copy_of_a_rank_is_left_out_and_hides_no_straggler(tmp_path):
    for number in range(2):
        shutil.copy(SLOW / f"rank-{number}.json.gz", tmp_path)
    shutil.copy(SLOW / "rank-1.json.gz", tmp_path / "rank-1 (copy).json.gz")
    job = tracekit.ranks(tmp_path)
    assert [each.rank for each in job.stragglers] == [1]
    message = job.problems.set_index("code").at["rank-copied", "message"]
    assert "rank-1.json.gz" in message and "rank-1 (copy).json.gz" in message


@pytest.mark.parametrize("field", ["baseTimeNanoseconds", "world_size"])
def test_a_trace_of_another_job_is_left_out(tmp_path, field):
    four = JOBS / "sleep-4"
    for number in range(4):
        shutil.copy(four / f"rank-{number}.json.gz", tmp_path)
    text = gzip.decompress((four / "rank-0.json.gz").read_bytes()).decode()
    other = {"baseTimeNanoseconds": "1700000000000000000", "world_size": "8"}[field]
    (tmp_path / "other.json").write_text(re.sub(f'"{field}":\\d+', f'"{field}":{other}', text))
    job = tracekit.ranks(tmp_path)
    assert [each.rank for each in job.stragglers] == [3]
    assert job.step_ns < 1e9
    assert "other.json" in job.problems.set_index("code").at["rank-foreign", "message"]


def test_ranks_of_two_jobs_have_no_common_step(tmp_path):
    """Neither is the foreign one, and the time between the two recordings is no step."""
    shutil.copy(JOBS / "sleep-2" / "rank-0.json.gz", tmp_path)
    shutil.copy(JOBS / "h200-ddp-healthy-2" / "rank-1.json.gz", tmp_path)
    job = tracekit.ranks(tmp_path)
    assert "clocks-not-aligned" in set(job.problems["code"])
    assert job.step_ns < 1e9


def test_a_rank_that_misses_a_call_is_the_headline(tmp_path):
    missing = str(JOBS / "missing-call-4")
    text = CliRunner().invoke(main, ["ranks", missing, "-o", f"{tmp_path}/"])
    assert text.exit_code == 0
    second = text.stdout.splitlines()[1]
    assert second.startswith("1 collective was not called on every rank of the group; missing on rank 3")
    assert "No rank delays" not in text.stdout and "×" not in text.stdout.split("error:")[0]
    data = json.loads((tmp_path / "ranks.json").read_text())
    assert "missing on rank 3" in data["summary"][1]
    assert "missing on rank 3" in (tmp_path / "ranks.html").read_text()


def test_a_stated_number_of_ranks_sizes_nothing(tmp_path):
    for number in range(2):
        text = gzip.decompress((SLOW / f"rank-{number}.json.gz").read_bytes()).decode()
        text = re.sub('"world_size":2', f'"world_size":{2**40}', text)
        text = re.sub('"pg_config":\\[.*?\\]\\}\\]', '"pg_config":[]', text)
        (tmp_path / f"rank-{number}.json").write_text(text)
    job = tracekit.ranks(tmp_path)
    assert job.world_size == 2**40 and len(job.ranks) == 2
    assert job.groups["ranks"].iloc[0] == f"0–{2**40 - 1}"
    assert [each.rank for each in job.stragglers] == [1]


@pytest.mark.parametrize("number", [2**63, -1, 10**30])
def test_an_impossible_number_of_ranks_is_reported(tmp_path, number):
    for rank in range(2):
        text = gzip.decompress((SLOW / f"rank-{rank}.json.gz").read_bytes()).decode()
        (tmp_path / f"rank-{rank}.json").write_text(text.replace('"world_size":2', f'"world_size":{number}'))
    job = tracekit.ranks(tmp_path)
    assert (job.world_size, len(job.ranks)) == (2, 2)


def test_ranks_by_number_not_by_name(tmp_path):
    for number in (0, 2, 10):
        (tmp_path / f"rank-{number}.json").touch()
    (tmp_path / "ranks.json").touch()
    assert [Path(path).name for path in rank_files(tmp_path)] == ["rank-0.json", "rank-2.json", "rank-10.json"]


@pytest.mark.parametrize(
    ("said", "names", "numbers", "guessed"),
    [
        ([1, 0], ["a", "b"], [1, 0], False),
        ([0, 0], ["job/rank-3.json.gz", "job/rank-4.json.gz"], [3, 4], False),
        ([None, None], ["host1_77.42.pt.trace.json", "host1_77.43.pt.trace.json"], [42, 43], False),
        ([None, None], ["a.json", "b.json"], [0, 1], True),
    ],
)
def test_the_numbers_of_ranks(said, names, numbers, guessed):
    assert rank_numbers(said, names) == (numbers, guessed)


def test_a_folder_without_traces(tmp_path):
    run = CliRunner().invoke(main, ["ranks", str(tmp_path)])
    assert run.exit_code == 1 and "contains no traces" in run.output


def test_one_rank_is_too_few():
    run = CliRunner().invoke(main, ["ranks", str(SLOW / "rank-0.json.gz")])
    assert run.exit_code == 1 and "tracekit analyze looks at one" in run.output


def test_analyze_of_a_folder_of_ranks_points_here():
    run = CliRunner().invoke(main, ["analyze", str(SLOW)])
    assert run.exit_code == 1 and f"tracekit ranks {SLOW}" in run.output


def test_in_memory():
    pytest.importorskip("fsspec").filesystem("memory").put(str(SLOW), "/job", recursive=True)
    job = tracekit.ranks("memory://job", workers=1)
    assert [straggler.rank for straggler in job.stragglers] == [1]
