"""`-o` replaces what the same command wrote about the same input, and refuses to replace anything else."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_trace import write_tiny_trace

from tracekit.analyzers.errors import TracekitError
from tracekit.bench.configurations import configuration
from tracekit.bench.held_rows import held_rows
from tracekit.bench.row import Row, to_csv
from tracekit.capture.settings import Settings
from tracekit.cli import main
from tracekit.runs.held_run import check_folder, check_script_folder


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return write_tiny_trace(tmp_path / "a.json", kernel_us=4)


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return write_tiny_trace(tmp_path / "b.json", kernel_us=5)


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    return result.exit_code, result.stderr


def assert_refused(target: Path, *arguments: object) -> None:
    before = target.read_bytes()
    code, said = call(*arguments)
    assert (code, "It would be overwritten." in said, "-o" in said) == (1, True, True)
    assert target.read_bytes() == before


def assert_replaced(target: Path, *arguments: object) -> None:
    assert call(*arguments)[0] == 0
    written = target.read_bytes()
    target.write_bytes(written + b"\n")
    assert call(*arguments)[0] == 0
    assert target.read_bytes() == written


def test_report(tmp_path: Path, a: Path, b: Path) -> None:
    page = tmp_path / "page.html"
    assert_replaced(page, "analyze", a, "-o", page)
    assert_refused(page, "analyze", b, "-o", page)
    assert call("analyze", b, "-o", page, "--force")[0] == 0
    assert_refused(page, "analyze", a, "-o", page)
    page.write_text("<!doctype html><title>mine</title>")
    assert_refused(page, "analyze", a, "-o", page)
    assert_refused(a, "analyze", a, "-o", a, "--force")


def test_the_report_beside_a_trace(tmp_path: Path, a: Path) -> None:
    page = tmp_path / "a.html"
    assert_replaced(page, "analyze", a, "-o", page)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("a.html", "a.json"):
        shutil.move(tmp_path / name, moved / name)
    assert call("analyze", moved / "a.json", "-o", moved / "a.html")[0] == 0
    (moved / "a.html").write_text("my own page")
    assert_refused(moved / "a.html", "analyze", moved / "a.json", "-o", moved / "a.html")


def test_annotate(tmp_path: Path, a: Path, b: Path) -> None:
    target = tmp_path / "new.json.gz"
    assert_replaced_trace(target, "analyze", a, "-o", target)
    assert_refused(target, "analyze", b, "-o", target)
    (tmp_path / "notes.trace.json").write_text("{}")
    assert_refused(tmp_path / "notes.trace.json", "analyze", a, "-o", tmp_path / "notes.trace.json")
    own = write_tiny_trace(tmp_path / "own.trace.json")
    assert call("analyze", own, "-o", own)[0] == 0
    assert call("analyze", b, "-o", target, "--force")[0] == 0


def assert_replaced_trace(target: Path, *arguments: object) -> None:
    assert call(*arguments)[0] == 0
    written = target.read_bytes()
    assert call(*arguments)[0] == 0
    assert target.read_bytes() == written


@pytest.mark.parametrize("name", ["x.html", "x.json", "x.md", "x.txt"])
def test_compare(tmp_path: Path, a: Path, b: Path, name: str) -> None:
    target = tmp_path / name
    assert_replaced(target, "compare", a, b, "-o", target)
    assert_refused(target, "compare", a, write_tiny_trace(tmp_path / "c.json", kernel_us=6), "-o", target)
    (tmp_path / "other").mkdir()
    assert_refused(target, "compare", a, write_tiny_trace(tmp_path / "other" / "b.json", kernel_us=6), "-o", target)
    target.write_text("something else")
    assert_refused(target, "compare", a, b, "-o", target)
    assert_refused(b, "compare", a, b, "-o", b)


def test_tables(tmp_path: Path, a: Path, b: Path) -> None:
    target = tmp_path / "x.csv"
    assert call("analyze", a, "-o", target)[0] == call("analyze", a, "-o", target)[0] == 0
    assert_refused(target, "analyze", b, "-o", target)
    assert_refused(target, "analyze", a, "-o", target, "--table", "layers")
    target.write_text("my,own,numbers\n1,2,3\n")
    assert_refused(target, "compare", a, write_tiny_trace(tmp_path / "third.json", kernel_us=6), "-o", target)
    assert_refused(a, "analyze", a, "-o", a)


@pytest.mark.parametrize("name", ["x.txt", "x.json"])
def test_predictions(tmp_path: Path, a: Path, b: Path, name: str) -> None:
    target = tmp_path / name
    assert_replaced(target, "predict", a, "-o", target)
    assert_refused(target, "predict", b, "-o", target)
    assert_refused(target, "analyze", a, "-o", target)


@pytest.mark.parametrize("name", ["x.json", "x.md", "x.txt"])
def test_texts(tmp_path: Path, a: Path, b: Path, name: str) -> None:
    target = tmp_path / name
    assert_replaced(target, "analyze", a, "-o", target)
    assert_refused(target, "analyze", b, "-o", target)
    target.write_text("something else")
    assert_refused(target, "analyze", a, "-o", target)


def settings(folder: Path, **changes: object) -> Settings:
    asked = {"model": "gpt2", "gpu": "t4", "workload": "decode", "device": "model", "output": str(folder)}
    return Settings(**{**asked, **changes})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings(tmp_path).as_dict()}))
    (tmp_path / "trace.json.gz").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("change", [{"model": "bert"}, {"gpu": "h200"}, {"workload": "prefill"}, {"device": "cpu"}])
def test_profile_refuses_the_run_of_something_else(run: Path, change: dict[str, str]) -> None:
    with pytest.raises(TracekitError, match="contains a run of gpt2 decode t4") as raised:
        check_folder(settings(run, **change), False, print)
    assert "--force" in raised.value.hint
    check_folder(settings(run, **change), True, print)


def test_profile_replaces_the_same_run_and_says_what_changed(run: Path) -> None:
    said: list[str] = []
    check_folder(settings(run), False, said.append)
    assert said == []
    check_folder(settings(run, batch_size=8), False, said.append)
    assert "batch_size 1" in said[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": 1}', '{"script": "train.py"}'])
def test_profile_refuses_a_folder_that_it_did_not_write(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    with pytest.raises(TracekitError, match="It would be overwritten"):
        check_folder(settings(run), False, print)


def test_run_replaces_the_run_of_the_same_script_only(run: Path) -> None:
    with pytest.raises(TracekitError, match="gpt2 decode t4"):
        check_script_folder(Path("train.py"), run, False)
    (run / "run.json").write_text('{"script": "train.py"}')
    check_script_folder(Path("other/train.py"), run, False)
    with pytest.raises(TracekitError, match=r"train\.py"):
        check_script_folder(Path("infer.py"), run, False)
    check_script_folder(Path("infer.py"), run, True)
    check_script_folder(Path("infer.py"), run / "new", False)


def row(**changes: object) -> Row:
    asked = {"model": "gpt2", "workload": "decode", "batch_size": 1, "seq_len": 64, "new_tokens": 0}
    return Row(**{**asked, "weights": "random", "config": "fp32", "first": "fp32", **changes})


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        ([], "contains no rows"),
        ([row(model="bert")], "another bench: bert"),
        ([row(), row(batch_size=4)], "batch 4"),
        ([row(), row(config="bf16")], "bf16"),
        ([row()], ""),
        ([row(), row(config="tf32")], ""),
    ],
)
def test_bench_goes_on_with_its_own_grid_only(tmp_path: Path, rows: list[Row], refused: str) -> None:
    path = tmp_path / "bench.csv"
    path.write_text(to_csv(rows))
    runs = [Settings(model="gpt2", workload="decode", seq_len=64, device="cpu")]
    wanted = [configuration("fp32"), configuration("tf32")]
    if refused:
        with pytest.raises(TracekitError, match=refused):
            held_rows(path, runs, wanted, False)
        assert held_rows(path, runs, wanted, True) == []
    else:
        assert held_rows(path, runs, wanted, False) == rows
