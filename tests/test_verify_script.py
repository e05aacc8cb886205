"""tracekit verify of a script's run: the script runs again, with and without what can be applied around it."""

import json
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from msgspec.structs import replace
from same_process import SameProcess
from torch import nn

import tracekit
from tracekit.advise import OPTIMIZATIONS, parse
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.cost.hardware import find
from tracekit.apply import ScriptChanges
from tracekit.cli import main
from tracekit.measure import verify_run, verify_script
from tracekit.measure.script_run import FEWEST_CALLS, Command, main_module, timed
from tracekit.measure.verifying import ON_A_CPU
from tracekit.run import read, write

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.up(x)
        seen.add((hidden.dtype, torch.compiler.is_compiling()))
        return self.down(torch.relu(hidden))

seen, steps = set(), int(sys.argv[1])
first, net, loss = nn.Linear(8, 8), Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(net.parameters())
data = DataLoader(TensorDataset(torch.randn(2 * steps, 8), torch.randint(4, (2 * steps,))), batch_size=2)
for x, y in data:
    loss(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
with open("seen.txt", "w") as file:
    print(*sorted(map(str, seen)), data.num_workers, optimizer.defaults["fused"], file=file)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script. What `timed` changes in this process is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    optim = torch.optim
    for kind in (torch.utils.data.DataLoader, optim.AdamW, optim.Adam, optim.SGD, optim.Adagrad):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    (tmp_path / "mine.py").write_text(SCRIPT)
    return tmp_path


def recorded(*arguments: str) -> Path:
    assert CliRunner().invoke(main, ["run", "-o", "runs/mine", "mine.py", *arguments]).exit_code == 0
    return Path("runs/mine")


@pytest.mark.usefixtures("here", "no_models")
def test_a_script_is_measured_again_and_what_is_inside_it_is_refused(monkeypatch):
    """One side of the pair runs in a process of its own, as both do, and the rest in this one."""
    for limit in ("FEWEST_PAIRS", "MOST_PAIRS"):
        monkeypatch.setattr(verify_script, limit, 1)
    apart, here = verify_script._called, SameProcess().call

    def called(verbose, function, *given):
        return apart(verbose, function, *given) if getattr(given[-1], "autocast", "") else here(function, *given)

    monkeypatch.setattr(verify_script, "_called", called)
    run = recorded("8")
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", "mixed-precision,gradient-checkpointing,tf32"])
    assert done.exit_code == 0, done.output
    mixed, checkpointing, tf32 = json.loads((run / "verify.json").read_text())["results"]
    assert mixed["measured"]["expected"] == mixed["before"]["median_us"] / mixed["after"]["median_us"]
    assert mixed["before"]["samples"] == 8 - 1 - 3
    assert any("one call of Net to the next" in line for line in mixed["caveats"])
    assert checkpointing["measured"] is None and "changes the code inside the script" in checkpointing["error"]
    assert "tracekit compare BEFORE AFTER" in checkpointing["error"]
    assert tf32["measured"] is None and "tensor cores" in tf32["error"]
    assert "mine.py, script, batch 2, fp32" in done.stdout
    assert [each["id"] for each in json.loads((run / "analysis.json").read_text())["verified"]] == [
        "mixed-precision",
        "gradient-checkpointing",
        "tf32",
    ]


def seen_with(changes: ScriptChanges) -> str:
    command = Command(Path("mine.py"), ("8",), on_cuda=False)
    times = timed(command, main_module(command), changes)
    assert len(times.samples_us) == 4 and min(times.samples_us) > 0
    return Path("seen.txt").read_text().strip()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("", "(torch.float32, False) 0 None"),
        ("mixed-precision", "(torch.bfloat16, False) 0 None"),
        ("half-precision", "(torch.bfloat16, False) 0 None"),
        ("fused-optimizer", "(torch.float32, False) 0 True"),
    ],
)
def test_what_is_applied_around_a_script(name, seen):
    plain = ScriptChanges()
    assert seen_with(parse(name).change_script(plain) if name else plain) == seen


@pytest.mark.usefixtures("here")
def test_a_loader_gets_workers_and_its_own_are_doubled():
    made, changes = [], parse("data-loading").change_script(ScriptChanges())
    changes.make()
    for workers in ({}, {"num_workers": 3}):
        made.append(torch.utils.data.DataLoader([1, 2], **workers))
    assert 1 <= made[0].num_workers <= 8 and made[1].num_workers == 6
    assert all(each.persistent_workers and not each.pin_memory for each in made)


def test_a_forward_pass_is_changed_and_gives_the_same():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    expected = model(x)
    half = parse("half-precision").change_script(ScriptChanges()).forward(model, model.forward)(x)
    assert half.dtype == torch.float32 and model[0].weight.dtype == torch.bfloat16
    torch.testing.assert_close(half, expected, atol=0.05, rtol=0.05)
    changes = parse("channels-last").change_script(ScriptChanges())
    model.float()
    last = changes.forward(model, model.forward)(x)
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("compile", {"mode": "default"}),
        ("max-autotune", {"mode": "max-autotune"}),
        ("compile+cuda-graphs", {"mode": "reduce-overhead"}),
        ("cuda-graphs", {"backend": "cudagraphs"}),
    ],
)
def test_compiling_and_graphs_are_those_of_torch(names, options, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda run, **named: asked.append(named) or run)
    changes = parse(names).change_script(ScriptChanges(on_cuda=True))
    assert changes.forward(nn.ReLU(), lambda x: x + 1)(1) == 2
    assert asked == [options]


def test_gradients_that_are_not_scaled_are_said():
    on_t4 = parse("mixed-precision").change_script(ScriptChanges(gpu=find("t4"), on_cuda=True))
    assert on_t4.autocast == "fp16" and "GradScaler" in on_t4.caveats[0]
    assert not parse("mixed-precision").change_script(ScriptChanges(gpu=find("h100"), on_cuda=True)).caveats


def test_every_other_optimization_says_that_it_cannot_be_applied_from_outside():
    on_a_gpu, applied = ScriptChanges(gpu=find("h100"), on_cuda=True), set()
    for each in OPTIMIZATIONS:
        try:
            each.change_script(on_a_gpu)
            applied.add(each.id)
        except TracekitError as error:
            assert "cannot be applied here" in error.what and "tracekit compare" in error.hint
    assert applied == {
        *("data-loading", "pinned-copies", "half-precision", "mixed-precision", "tf32", "channels-last"),
        *("fused-optimizer", "compile", "max-autotune", "cuda-graphs"),
    }
    assert verify_script.applicable(ON_A_CPU) == ["half-precision", "compile"]


def test_a_step_that_the_script_marks_is_timed_and_nothing_is_recorded(here):
    text = """
import time, torch, tracekit
net = torch.nn.Linear(2, 2)
with tracekit.capture("runs/block") as capture:
    for _ in range(8):
        with capture.step():
            net(torch.ones(1, 2))
            time.sleep(0.002)
        time.sleep(0.05)
print(capture.path)
"""
    (here / "mine.py").write_text(text)
    command = Command(Path("mine.py"), (), on_cuda=False)
    times = timed(command, main_module(command), ScriptChanges())
    assert len(times.samples_us) == 5 and 2_000 < min(times.samples_us) < 50_000
    assert not Path("runs").exists()


def test_a_block_of_a_script_is_repeated_by_the_script(here, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine.py", "9"])
    for name, value in (("__file__", str(here / "mine.py")), ("__spec__", None)):
        monkeypatch.setattr(sys.modules["__main__"], name, value, raising=False)
    with tracekit.capture("runs/block"):
        nn.Linear(2, 2)(torch.ones(3, 2))
    run = read(Path("runs/block"))
    assert (run.block, run.script, run.arguments, run.batch_size) == (True, "mine.py", ["9"], 3)
    again = verify_script.script_run_of(run, Path("runs/block"), "cpu")
    assert again.command == Command(Path("mine.py"), ("9",), on_cuda=False)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("steps", ["2", str(FEWEST_CALLS - 1)])
def test_a_script_of_too_few_steps_is_told(steps):
    with pytest.raises(InputError, match=f"calls no torch module {FEWEST_CALLS} times"):
        main_module(Command(Path("mine.py"), (steps,), on_cuda=False))


@pytest.mark.usefixtures("here")
def test_a_script_that_fails_and_one_without_a_loader_are_told():
    with pytest.raises(TracekitError, match=r"mine\.py failed\.") as failed:
        main_module(Command(Path("mine.py"), (), on_cuda=False))
    assert "IndexError" in failed.value.why
    Path("mine.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor _ in range(9): net(torch.ones(1, 2))\n")
    command = Command(Path("mine.py"), (), on_cuda=False)
    with pytest.raises(TracekitError) as missing:
        timed(command, main_module(command), parse("data-loading").change_script(ScriptChanges()))
    assert missing.value.why == "The script makes no DataLoader of torch."


def test_nothing_of_a_run_that_somebody_else_made_is_executed(here, monkeypatch):
    run = recorded("8")
    (here / "evil.py").write_text("open('executed', 'w')")
    mine = read(run)
    monkeypatch.setattr(verify_script, "measured", pytest.fail)
    for tampered in (replace(mine, script="evil.py"), replace(mine, arguments=["9"]), replace(mine, seal="0" * 64)):
        write(tampered, run)
        with pytest.raises(InputError, match="is not run again") as refused:
            verify_run(run)
        assert "not recorded by you" in refused.value.why
    write(replace(mine, seal=""), run)
    with pytest.raises(InputError) as refused:
        verify_run(run)
    assert "secrets" in refused.value.why
    write(mine, run)
    (here / "mine.py").write_text(SCRIPT + "\n")
    with pytest.raises(InputError) as refused:
        verify_run(run)
    assert "mine.py has changed since." in refused.value.why and "tracekit run mine.py" in refused.value.hint
    (here / "mine.py").unlink()
    with pytest.raises(InputError) as refused:
        verify_run(run)
    assert "the folder in which mine.py was started" in refused.value.hint
    assert not (here / "executed").exists()


@pytest.mark.usefixtures("here")
def test_a_modelled_script_needs_a_gpu_and_a_draft_needs_a_model():
    assert CliRunner().invoke(main, ["run", "--gpu", "t4", "-o", "runs/t4", "mine.py", "8"]).exit_code == 0
    done = CliRunner().invoke(main, ["verify", "runs/t4"])
    assert done.exit_code == 1 and "Nothing can be measured here." in done.stderr
    done = CliRunner().invoke(main, ["verify", "runs/t4", "--draft", "gpt2"])
    assert done.exit_code == 1 and "draft" in done.stderr
    assert tracekit.load("runs/t4").metadata.capture.source == "modelled"
