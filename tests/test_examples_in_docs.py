"""The commands and the Python of the README and the docs run as they are printed, on the files in examples/."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.capture import models
from tracekit.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {
    r"^tracekit verify |^tracekit bench (?!.*--gpu)": "measures for minutes; test_verify_command.py, test_bench.py",
    r"^tracekit bench .*--attention eager": "models 60 points; the README's grid is tried",
    r"^tracekit open ": "opens a browser, or waits for one; tests/test_open_command.py",
    r"^tracekit mcp --root": "serves until its input ends; tests/programs",
    r"^torchrun|--fsdp --world-size 2 |ranks runs/(mine|job)": "starts a process for each rank; tests/capture",
    r"^python3 -m venv|^pip install": "installs packages; .ci/run",
    r"^tracekit profile --model gpt2 --workload decode -o": "measures on a GPU; modelled runs are tried",
    r"^tracekit run .* --train|analyze runs/gpt2_from_scratch": "trains for a minute; tests/capture/test_own_code.py",
    r"--synchronize modules": "runs the reader's script; tests/capture/test_synchronized_modules.py",
    r"--ops-file ops.toml|--apply no-dropout|analyze kernels.csv": "uses the page's plug-in; test_plugins.py",
    r"ranks operations.parquet": "reads a job of the reader's; tests/ranks/test_replay.py",
    r"^tracekit (check head/1|analyze big_training)|--model my_model/": "names runs or models of the reader's",
}
"""Commands that the test does not run: why, and what tries them."""
FEWER_LAYERS = ("--layers", "2")
"""What the script that runs on this CPU is given, as the bundled models are."""
GIVEN = """
import torch

model, batches = torch.nn.Linear(4, 4), [{"input": torch.ones(2, 4)}] * 2
"""


def commands(page: Path) -> list[str]:
    """Return the commands of a page in their order. That of an installation ends with the first one of tracekit."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in re.findall(r"^\$ (.*)", block, re.M)]
    return [re.sub(r"^python3 -m venv .* && \.venv/bin/(?=tracekit)", "", line) for line in lines]


@pytest.fixture
def _two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give bundled models two layers: a command does the same with each. test_modelled_latency.py has whole models."""

    def shallow(spec: models.ModelSpec) -> models.ModelSpec:
        config = spec.hyper_parameters or {}
        deep = config.keys() & {"n_layer", "num_hidden_layers"} if "layer_types" not in config else ()
        return replace(spec, hyper_parameters=config | dict.fromkeys(deep, 2))

    few = tuple(map(shallow, models.bundled()))
    monkeypatch.setattr(models, "bundled", lambda: few)


@pytest.mark.slow
@pytest.mark.usefixtures("_two_layers")
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_run_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        if any(re.search(pattern, line) for pattern in ELSEWHERE):
            continue
        program, *words = shlex.split(line, comments=True)
        assert program == "tracekit", line
        done = CliRunner().invoke(main, [*words, *(FEWER_LAYERS if words[-1].endswith("gpt2_from_scratch.py") else ())])
        assert done.exit_code == 0, f"{line}\n{done.stderr}"


def test_every_reason_is_needed() -> None:
    lines = [line for page in PAGES for line in commands(page)]
    assert len(lines) > 40
    assert not [pattern for pattern in ELSEWHERE if not any(re.search(pattern, line) for line in lines)]


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    names: dict[str, object] = {}
    exec(GIVEN + code, names)
    assert (tmp_path / "runs/mine/trace.json.gz").is_file() and len(names["analysis"].layers)


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 110
