"""Every folder that tracekit writes is a run: each command takes it, or says in a sentence what is missing."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from same_process import SameProcess
from tiny_models import write_model
from torch import nn

import tracekit
from tracekit.cli import main
from tracekit.measure import benching, verify_script
from tracekit.run import read

SCRIPT = "import torch\nnet = torch.nn.Linear(8, 8)\nfor _ in range(6): net(torch.ones(2, 8))\n"


def call(words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, words.split())
    return done.exit_code, done.output


def profiled(*options: str) -> Callable[[str], None]:
    def write(folder: str) -> None:
        model = write_model(Path("llama"), "llama")
        asked = " ".join(("--workload decode --seq-len 8 --dtype fp32", *options))
        assert call(f"profile --model {model} {asked} -o {folder}")[0] == 0

    return write


def module(**options: str) -> Callable[[str], None]:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return lambda folder: tracekit.profile(net, torch.ones(2, 8), output=folder, **options) and None


def script(*options: str) -> Callable[[str], None]:
    def write(folder: str) -> None:
        Path("mine.py").write_text(SCRIPT)
        assert call(" ".join(("run", *options, "-o", folder, "mine.py")))[0] == 0

    return write


def block(**options: str) -> Callable[[str], None]:
    """A block of a notebook, which is part of no script."""

    def write(folder: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(sys.modules["__main__"], "__file__", raising=False)
            _record(folder, **options)

    return write


def _record(folder: str, **options: str) -> None:
    with tracekit.capture(folder, **options) as capture:
        for _ in range(3):
            with capture.step():
                nn.Linear(8, 8)(torch.ones(2, 8))


def bench(folder: str) -> None:
    model = write_model(Path("gpt2"), "gpt2")
    asked = "--device cpu --dtype fp32 --seq-len 8 --max-seconds 0.1 --apply none"
    assert call(f"bench --model {model} {asked} -o {folder}")[0] == 0


def job(folder: str) -> None:
    script()(f"{folder}/rank-0")
    shutil.copytree(f"{folder}/rank-0", f"{folder}/rank-1")


KINDS: dict[str, Callable[[str], None]] = {
    "profile-cpu": profiled("--device cpu"),
    "profile-t4": profiled("--gpu t4 --device model"),
    "module-cpu": module(device="cpu"),
    "module-t4": module(gpu="t4", device="model"),
    "run-cpu": script(),
    "run-t4": script("--gpu t4 --device model"),
    "block-cpu": block(),
    "block-t4": block(gpu="t4", device="model"),
    "bench": bench,
    "job": job,
}
COMMANDS = {
    "analyze": "analyze RUN",
    "predict": "predict RUN --apply compile",
    "compare": "compare RUN RUN",
    "save": "check RUN --save NAME",
    "check": "check RUN --against NAME --record",
    "memory": "memory RUN",
    "fuse": "fuse RUN",
    "fuse all": "fuse RUN --all",
    "open": "open RUN --no-browser",
    "verify": "verify RUN --apply gradient-checkpointing",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one run of each kind."""
    folder = tmp_path_factory.mktemp("life")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(benching, "Worker", SameProcess)
        for name, write in KINDS.items():
            write(name)
    return folder


NO_GPU_WORK = {
    "predict": "The trace has no GPU work to predict from. // Record it on a GPU, or model it for one (--gpu).",
    "memory": "has no [memory] events.",
    "fuse all": "contains no graph of its ops. // Kernels are written from the data flow",
}
NO_GRAPH = {"fuse all": "Profile the model: tracekit profile --model NAME, or tracekit.profile(model, inputs)"}
NOT_HERE = {"verify": "this machine has no GPU. // Add --device cpu"}
IN_PYTHON = {"verify": "which only your code can build. // Measure it in Python: tracekit.verify(model, inputs"}
ONE_OF_THEM = "It contains 2 runs. // Name one of them, such as job/rank-0, or compare all: tracekit ranks job."
NOT_A_RUN = "is a folder without a trace.json.gz. // Name a trace file, or a folder of a run; tracekit profile, run"
MISSING: dict[str, dict[str, str]] = {
    "profile-cpu": NO_GPU_WORK,
    "profile-t4": NOT_HERE,
    "module-cpu": NO_GPU_WORK | IN_PYTHON,
    "module-t4": IN_PYTHON,
    "run-cpu": NO_GPU_WORK,
    "run-t4": NO_GRAPH | NOT_HERE,
    "block-cpu": NO_GPU_WORK | {"verify": "It is a block of code that no script contains. // Measure it in Python"},
    "block-t4": NO_GRAPH | {"verify": "It is a block of code that no script contains. // Measure it in Python"},
    "bench": {
        **dict.fromkeys(COMMANDS, NOT_A_RUN),
        "check": "is not a baseline",
        "verify": "It is the folder of a bench of gpt2. // Record one: tracekit profile --model NAME",
        "open": "",
    },
    "job": {**dict.fromkeys(COMMANDS, ONE_OF_THEM), "check": "is not a baseline", "compare": "as a rank of the job"},
}
"""What a command says that cannot be done with a kind of run; "" and none: it works."""


@pytest.mark.usefixtures("same_process")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_takes_each_kind_of_run_or_says_what_is_missing(runs, monkeypatch, kind, command):
    monkeypatch.chdir(runs)
    monkeypatch.setattr(verify_script, "_called", lambda _, function, *given: function(*given))
    code, said = call(COMMANDS[command].replace("RUN", kind).replace("NAME", kind))
    missing = MISSING[kind].get(command, "")
    told = " // ".join(line.strip() for line in said.splitlines())
    assert missing in told, told
    judged = (0, 3) if command == "check" else (0,)  # Times of a CPU may be too noisy for a verdict.
    assert code in ((2,) if command in ("save", "check") else (1,)) if missing else code in judged, told
    assert "a bug of tracekit" not in said and "Traceback" not in said


def test_each_kind_of_run_says_what_it_is(runs):
    about = {kind: read(runs / kind) for kind in KINDS if kind != "job"}
    assert {kind: each.device for kind, each in about.items()} == {
        kind: "cpu" if kind == "bench" or kind.endswith("cpu") else "model" for kind in about
    }
    assert all(each.gpu == ("t4" if kind.endswith("t4") else "") for kind, each in about.items())
    measured = [each for kind, each in about.items() if kind != "bench"]
    assert all(each.dtype == "fp32" and each.batch_size in (1, 2) for each in measured)
    assert all(each.tracekit and each.versions["torch"] == torch.__version__ for each in about.values())
    assert [about[kind].described for kind in ("module-t4", "run-cpu", "block-cpu", "bench")] == [
        "Sequential t4",
        "mine.py",
        "blocks of code",
        "a bench",
    ]
