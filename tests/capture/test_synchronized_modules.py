"""`--synchronize modules`: the shares of a timing between synchronizations beside those of the work, and why."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from tiny_models import write_model

import tracekit
from tracekit.analyzers.attribute.layer_tables import synchronized_problem
from tracekit.capture import ModuleTimes, annotate, latency
from tracekit.cli import main
from tracekit.reports.answer import terminal_document
from tracekit.reports.document import render

SCRIPT = """
import time, torch
class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.005)
        return x
class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slow, self.linear = Slow(), torch.nn.Linear(64, 64)
    def forward(self, x):
        return self.slow(self.linear(x))
model = Both()
for _ in range(3):
    print("called"), model(torch.ones(8, 64))
"""


class Waits(torch.nn.Module):
    def __init__(self, seconds: float, *inside: torch.nn.Module) -> None:
        super().__init__()
        self.seconds, self.inside = seconds, torch.nn.ModuleList(inside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        for each in self.inside:
            x = each(x)
        return x


class Leaf(Waits): ...


def test_a_class_has_its_time_once_and_the_first_call_is_left_out(monkeypatch):
    waited = []
    monkeypatch.setattr(latency, "synchronize", lambda: waited.append(1))
    leaf = Leaf(0.01, Leaf(0.01))
    model, times = Waits(0.02, leaf), ModuleTimes()
    with annotate(model, times):
        leaf.seconds = 0.2
        model(torch.ones(1))
        leaf.seconds = 0.01
        for _ in range(2):
            model(torch.ones(1))
    assert len(waited) == 3 * 3 * 2  # calls, modules, ends
    shares = times.shares()
    assert shares["Waits"] == 1 and 0.4 < shares["Leaf"] < 0.6


@pytest.mark.parametrize("capturing", [False, True])
def test_a_graph_that_is_captured_is_not_waited_for(monkeypatch, capturing):
    waited = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: capturing,
        synchronize=lambda: waited.append(1),
    )
    monkeypatch.setattr(latency, "require", lambda _: cuda)
    latency.synchronize()
    assert len(waited) == (not capturing)


def layers_of(folder):
    analysis = tracekit.analyze(folder / "trace.json.gz")
    return analysis, analysis.layer_types.set_index("type")


@pytest.mark.usefixtures("same_process")
def test_a_profile_has_both_shares_and_says_why_they_differ(tmp_path):
    model = write_model(tmp_path / "llama", "llama")
    command = ["profile", "--model", str(model), "--seq-len", "8", "--device", "cpu", "--dtype", "fp32"]
    done = CliRunner().invoke(main, [*command, "--synchronize", "modules", "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["synchronize"] == "modules"
    analysis, types = layers_of(tmp_path / "run")
    shares = types["synchronized_share"]
    assert shares["LlamaForCausalLM"] == 1 and 0.2 < shares["LlamaDecoderLayer"] < shares["LlamaModel"] < 1
    (problem,) = analysis.problems[analysis.problems["code"] == "synchronized-modules"].itertuples()
    assert "a CPU has nothing to synchronize" in problem.message and " instead of " in problem.message
    stored = json.loads((tmp_path / "run" / "analysis.json").read_text())
    assert stored["layer_types"][0]["synchronized_share"] == pytest.approx(1, abs=0.01)
    assert (
        "synchronized" in render(terminal_document(analysis), "text", width=120)
        and "synchronized" in (tmp_path / "run" / "report.html").read_text()
    )


@pytest.mark.usefixtures("same_process")
def test_a_profile_without_it_has_neither(tmp_path):
    model = write_model(tmp_path / "llama", "llama")
    command = ["profile", "--model", str(model), "--seq-len", "8", "--device", "cpu", "--dtype", "fp32"]
    assert CliRunner().invoke(main, [*command, "-o", str(tmp_path / "run")]).exit_code == 0
    analysis, types = layers_of(tmp_path / "run")
    assert types["synchronized_share"].isna().all() and "synchronized" not in render(
        terminal_document(analysis), "text", width=120
    )
    assert not (analysis.problems["code"] == "synchronized-modules").any()


def test_a_script_runs_once_more_and_time_of_the_host_is_its_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SCRIPT)
    done = CliRunner().invoke(main, ["run", "--synchronize", "modules", "-o", "run", "own.py"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("called") == 3  # the other process prints nothing here
    _, types = layers_of(tmp_path / "run")
    slow = types.loc["Slow"] if "Slow" in types.index else None
    assert types.loc["Both", "synchronized_share"] == 1 and types.loc["Linear", "synchronized_share"] < 0.5
    assert slow is None or slow["synchronized_share"] > 0.5


def test_on_a_device_the_sentence_names_launches():

    analysis = tracekit.analyze(Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_decode.json.gz")
    types = analysis.layer_types.assign(synchronized_share=analysis.layer_types["share"] / 2)
    (problem,) = synchronized_problem(types, on_device=True).itertuples()
    assert "GPT2LMHeadModel takes 50.0 % instead of 100.0 %" in problem.message
    assert "exposes the latency of launches" in problem.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("profile --model gpt2 --gpu t4", "A modelled run has no module to synchronize."),
        ("profile --model gpt2 --device cpu --workload train", "Modules of a training step are not timed."),
        ("profile --model gpt2 --device cpu --tensor-parallel 2", "Modules of several ranks are not timed."),
        ("run --gpu t4 own.py", "A modelled run has no module to synchronize."),
    ],
)
def test_what_cannot_be_synchronized_is_refused(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SCRIPT)
    verb, *more = words.split()
    done = CliRunner().invoke(main, [verb, "--synchronize", "modules", *more])
    assert done.exit_code == 1 and said in done.stderr
    assert not (tmp_path / "runs").exists()
