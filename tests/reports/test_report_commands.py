import csv
import io
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.results import Analysis
from tracekit.cli import main
from tracekit.reports.answer import render
from tracekit.reports.answer.export import to_csv, to_dict, to_json
from tracekit.reports.words import check_writable, mark_of, write_atomically


@pytest.fixture
def requests(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Collects the arguments of `tracekit.answer.analyzing.analyze`, which returns the made-up analysis."""
    calls: list[tuple[str, str | None]] = []

    def answer(path: str, gpu: str | None = None, counters: str | None = None, **_: bool) -> Analysis:
        calls.append((path, gpu, *([counters] if counters else [])))
        return analysis

    monkeypatch.setattr("tracekit.answer.analyzing.analyze", answer)
    return calls


def test_analyze_prints_data_and_nothing_else(requests: list, analysis: Analysis) -> None:
    result = CliRunner().invoke(main, ["analyze", "some.json", "--gpu", "t4", "--format", "json"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, to_json(analysis), "")
    assert requests == [("some.json", "t4")]
    result = CliRunner().invoke(main, ["analyze", "some.json", "--format", "csv", "--table", "ops"])
    assert (result.stdout, result.stderr) == (to_csv(analysis, "ops"), "")


def test_text_and_page_hand_counters_on(requests: list, tmp_path: Path) -> None:
    CliRunner().invoke(main, ["analyze", "some.json", "--counters", "ncu.csv"])
    CliRunner().invoke(main, ["analyze", "some.json", "--counters", "ncu.csv", "-o", str(tmp_path / "a.html")])
    assert requests == [("some.json", None, "ncu.csv")] * 2


@pytest.mark.usefixtures("requests")
def test_analyze_prints_text_without_colour_into_a_pipe() -> None:
    result = CliRunner().invoke(main, ["analyze", "some.json"])
    assert result.stdout.startswith("GPT-2 decode, batch 1, 512 tokens, fp32, on an H200: 87 % waiting for the host")
    assert "\x1b" not in result.stdout


@pytest.mark.usefixtures("requests")
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.json", "{"),
        ("a.csv", "name,category,calls"),
        ("a.txt", "GPT-2"),
        ("a.md", "**GPT-2"),
        ("A.HTML", "<!doctype"),
    ],
)
def test_analyze_takes_the_format_from_the_file_name(tmp_path: Path, name: str, start: str) -> None:
    target = tmp_path / "new" / name
    result = CliRunner().invoke(main, ["analyze", "some.json", "-o", str(target)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert str(target) in result.stderr
    assert target.read_text("utf-8").startswith(start)


@pytest.mark.usefixtures("requests")
def test_analyze_writes_the_page(analysis: Analysis, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["analyze", "some.json", "-o", str(target)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text("utf-8") == render(analysis, mark_of("some.json"))


@pytest.mark.usefixtures("requests")
def test_the_page_of_a_run_is_the_one_that_profile_writes(analysis: Analysis, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    for trace in (run, run / "trace.json.gz"):
        CliRunner().invoke(main, ["analyze", str(trace), "-o", str(run / "report.html")])
        assert (run / "report.html").read_text("utf-8") == render(analysis)


def test_a_target_that_cannot_be_is_refused_before_the_work(requests: list, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["analyze", "some.json", "-o", str(tmp_path)])
    assert (result.exit_code, "It is a folder." in result.stderr) == (1, True)
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["analyze", "some.json", "-o", str(tmp_path / "file" / "below.json")])
    assert result.exit_code == 1
    assert requests == []


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    write_atomically(target, "first")
    target.chmod(0o640)
    write_atomically(target, "µ second")
    assert target.read_bytes() == "µ second".encode()
    assert target.stat().st_mode & 0o777 == 0o640

    def broken(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(TracekitError, match="No space left on device"):
        write_atomically(target, "third")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_bytes() == "µ second".encode()


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    check_writable(tmp_path / "new" / "deep" / "file")
    write_atomically(tmp_path / "new" / "deep" / "file", b"x")
    assert (tmp_path / "new" / "deep" / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_real_traces_from_file_to_every_output(shared: Path) -> None:
    """Renders the traces with the largest pages. test_consistent_advice.py validates all against the schema."""
    from tracekit.answer import analyze as analyze_file

    analyses = [analyze_file(trace) for trace in sorted((shared / "traces").glob("*.json.gz"))]
    for analysis in analyses:
        kernels = to_dict(analysis)["kernels"]
        assert kernels, analysis.source
        assert len(list(csv.DictReader(io.StringIO(to_csv(analysis))))) == len(kernels)
    for analysis in sorted(analyses, key=lambda each: len(each.layers))[-2:]:
        assert len(render(analysis).encode()) < 3_000_000


@pytest.mark.parametrize("verb", ["analyze t.json", "compare t.json u.json", "predict t.json", "memory t.json"])
def test_an_unknown_extension_is_refused_with_those_that_are_known(verb: str, tmp_path: Path) -> None:
    for name in ("x", "x.htm", "x.pdf", "x.trace"):
        result = CliRunner().invoke(main, [*verb.split(), "-o", str(tmp_path / name)])
        assert result.exit_code == 2
        assert "Its extension is " in result.stderr and ".json" in result.stderr and ".txt" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_extension_and_the_format_cannot_disagree(requests: list, tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    for words in (["--format", "csv"], ["--format", "html"]):
        result = CliRunner().invoke(main, ["analyze", "some.json", "-o", str(target), *words])
        assert (result.exit_code, "is json by its extension" in result.stderr) == (2, True)
    for words in (["--brief", "--format", "csv"], ["--row", "layer:x", "-o", str(tmp_path / "x.html")]):
        result = CliRunner().invoke(main, ["analyze", "some.json", *words])
        assert (result.exit_code, "is JSON" in result.stderr) == (2, True)
    assert requests == []


def test_a_folder_of_results_is_not_called_like_a_file(tmp_path: Path) -> None:
    for verb in ("profile --model gpt2 --gpu t4", "bench --model gpt2 --gpu t4"):
        result = CliRunner().invoke(main, [*verb.split(), "-o", str(tmp_path / "x.html")])
        assert (result.exit_code, "into a folder" in result.stderr) == (2, True), result.stderr
