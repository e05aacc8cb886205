"""Capturing the user's code: blocks and scripts."""

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import tracekit
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import ranges
from tracekit.cli import main

SCRIPT = """
import sys
import torch
from torch import nn
from helper import LAYERS

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(LAYERS)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

net = Net()
net(torch.ones(2, 8)).sum().backward()
print(__name__, sys.argv[1:])
if "--raise" in sys.argv:
    raise ValueError("of the script")
sys.exit(int(sys.argv[-1]))
"""


def modules_of(trace):
    parsed = [ranges.parse(name) for name in trace.host.sort_values("start_ns")["name"]]
    return [(path, kind) for mark in parsed if mark for what, path, kind in [mark] if what == "module"]


def test_a_block(tmp_path):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with tracekit.capture(tmp_path / "run") as capture:
        for _ in range(3):
            with capture.step():
                net(torch.ones(2, 4))
    trace = tracekit.load(tmp_path / "run")
    assert modules_of(trace) == [("(model)", "Sequential"), ("0", "Linear"), ("1", "ReLU")] * 3
    assert [name for name in trace.host["name"].astype(str) if name.startswith("step")] == [
        f"step: {i}" for i in range(3)
    ]
    info = trace.metadata.capture
    assert (info.source, info.device, info.steps, info.latency) == ("measured", "cpu", 3, None)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"trace.json.gz", "run.json"}


def test_a_block_that_raises_leaves_its_trace(tmp_path):
    with pytest.raises(KeyError), tracekit.capture(tmp_path):
        nn.ReLU()(torch.ones(2))
        raise KeyError("mine")
    assert modules_of(tracekit.load(tmp_path)) == [("(model)", "ReLU")]
    assert not torch.nn.modules.module._global_forward_hooks


def test_a_place_that_cannot_be_written_is_an_error_before_the_block(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TracekitError), tracekit.capture(tmp_path / "file"):
        pytest.fail("the block must not run")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    (folder / "helper.py").write_text("LAYERS = 2\n")
    (folder / "script.py").write_text(SCRIPT)
    return folder / "script.py"


def run(script, output, *args):
    return CliRunner().invoke(main, ["run", "-o", str(output), str(script), *args])


def test_a_script(script, tmp_path):
    done = run(script, tmp_path, "--flag", "0")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("__main__ ['--flag', '0']\n")
    assert {path.name for path in tmp_path.iterdir()} == {"trace.json.gz", "run.json", "report.html", "analysis.json"}
    assert modules_of(tracekit.load(tmp_path)) == [("(model)", "Net"), ("layers.0", "Linear"), ("layers.1", "Linear")]


@pytest.mark.parametrize(("args", "status"), [(["--raise", "0"], 1), (["7"], 7)])
def test_a_script_that_fails_is_passed_on_and_its_trace_kept(script, tmp_path, args, status):
    done = run(script, tmp_path, *args)
    assert done.exit_code == status
    assert ("ValueError: of the script" in done.stderr) == ("--raise" in args)
    assert "runpy" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"trace.json.gz", "run.json"}
    assert ("(model)", "Net") in modules_of(tracekit.load(tmp_path))
