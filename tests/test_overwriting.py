"""`-o` replaces what the same command wrote about the same input, and refuses to replace anything else."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tiny_trace import write_tiny_trace

from tracekit.analyzers.core import TracekitError
from tracekit.cli import main
from tracekit.measure import Row, configuration
from tracekit.measure.bench_rows import held_rows, to_csv
from tracekit.run import Run, Settings, check_folder, check_replaced, read, run_of_script, unused_folder, write


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


def test_a_report_that_was_printed_is_of_its_trace(tmp_path: Path, a: Path, b: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(CliRunner().invoke(main, ["analyze", str(a), "--format", "html"]).stdout)
    assert_refused(page, "analyze", b, "-o", page)
    assert call("analyze", a, "-o", page)[0] == 0


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


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return path


def test_a_script_replaces_only_its_own_run(run: Path, script: Path) -> None:
    ours = run_of_script(script, ["--epochs", "1"])
    with pytest.raises(TracekitError, match="gpt2 decode t4"):
        check_replaced(ours, run, False)
    write(ours, run)
    check_replaced(ours, run, False)
    others = [run_of_script(script, []), replace(ours, gpu="t4"), replace(ours, device="model"), Run(module="Net")]
    script.write_text("print(2)\n")
    for other in (
        *others,
        run_of_script(script, ["--epochs", "1"]),
        run_of_script(script, ["--epochs", "1"], block=True),
    ):
        with pytest.raises(TracekitError, match=r"train\.py --epochs 1.\n?") as raised:
            check_replaced(other, run, False)
        assert "--force" in raised.value.hint
        check_replaced(other, run, True)
        check_replaced(other, run / "new", False)


def test_a_block_replaces_what_the_same_script_recorded_before(tmp_path: Path, script: Path) -> None:
    write(run_of_script(script, ["1"], block=True), tmp_path)
    script.write_text("print(3)\n")
    check_replaced(run_of_script(script, [], block=True), tmp_path, False)
    with pytest.raises(TracekitError, match=r"blocks of .*train\.py"):
        check_replaced(Run(block=True), tmp_path, False)


def test_the_default_folder_of_another_run_gets_a_number(tmp_path: Path, script: Path) -> None:
    runs = [replace(run_of_script(script, []), gpu=gpu) for gpu in ("", "t4", "h200")]
    folders = [tmp_path / name for name in ("mine", "mine-2", "mine-3")]
    for each, folder in zip(runs, folders, strict=True):
        assert unused_folder(each, tmp_path / "mine") == folder
        write(each, folder)
    assert [unused_folder(each, tmp_path / "mine") for each in runs] == folders


SCRIPT = "import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 4))\n"


@pytest.mark.parametrize("first", [["--gpu", "t4"], []])
def test_runs_of_one_script_on_several_gpus_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SCRIPT)
    assert call("run", *first, "mine.py")[0] == 0
    for other in ([], ["--gpu", "t4"]):
        assert call("run", *other, "mine.py")[0] == 0
    assert call("run", "mine.py", "--more")[0] == 0
    about = {path.name: read(path) for path in Path("runs").iterdir()}
    assert {name: (each.gpu, each.arguments, each.batch_size) for name, each in about.items()} == {
        "mine": ("", [], 2),
        "mine-t4": ("t4", [], 2),
        "mine-2": ("", ["--more"], 2),
    }
    assert {each.device for each in about.values()} == {"cpu", "model"}
    assert all(each.script == "mine.py" and each.dtype == "fp32" and each.versions for each in about.values())
    code, said = call("run", "-o", "runs/mine", "--gpu", "t4", "mine.py")
    assert code == 1 and "runs/mine contains a run of mine.py." in said and "--force" in said


def test_what_belongs_to_a_replaced_run_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SCRIPT)
    for name in ("graph.json.gz", "verify.json"):
        (run / name).write_text("of gpt2")
    assert call("run", "-o", run, "mine.py")[0] == 1 and (run / "graph.json.gz").exists()
    assert call("run", "-o", run, "--force", "mine.py")[0] == 0
    assert not (run / "graph.json.gz").exists() and not (run / "verify.json").exists()


def test_options_after_the_script_are_said_to_be_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SCRIPT)
    code, said = call("run", "mine.py", "-o", "there", "--lr", "1", "--gpu=t4")
    assert code == 0 and "-o, --gpu=t4 after mine.py is an argument of the script" in said
    assert "after mine.py" not in call("run", "mine.py", "--lr", "1")[1]


def test_arguments_that_look_like_secrets_are_not_kept(script: Path) -> None:
    given = ["--hub-token", "abc", "--api_key=abc", "--tokens", "512", "hf_0123456789abcdefgh", "--env", "CartPole"]
    kept = run_of_script(script, given)
    assert kept.arguments == ["--hub-token", "(secret)", "(secret)", "--tokens", "512", "(secret)", "--env", "CartPole"]
    assert not kept.seal and run_of_script(script, given[3:5]).seal


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
