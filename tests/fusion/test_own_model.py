"""Fused kernels for a module of the user's own: its graph, its plan, and a kernel in its place."""

import shutil

import msgspec
import pytest

torch = pytest.importorskip("torch")

from click.testing import CliRunner
from torch import nn

import tracekit
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.trace import ranges
from tracekit.apply import Subject, prepare, with_written_kernels
from tracekit.apply.written_kernels import graph_of_subject
from tracekit.cli import main
from tracekit.fuse.writing import load
from tracekit.run import GRAPH, Settings


class GatedMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(64, 256, bias=False), nn.Linear(64, 256, bias=False)
        self.down = nn.Linear(256, 64, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Reads(GatedMLP):
    """Its code depends on a value."""

    def forward(self, x):
        return super().forward(x) if x.sum().item() > 1e9 else x


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(GatedMLP(), GatedMLP())


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    tracekit.profile(model, torch.randn(2, 16, 64), gpu="h100", device="model", output=folder)
    return folder


def test_a_modelled_module_keeps_its_graph(run):
    assert (run / GRAPH).is_file()
    shown = CliRunner().invoke(main, ["fuse", str(run)])
    assert shown.exit_code == 0, shown.output
    assert "gated activation, 2 \u00d7" in shown.output
    assert "NVIDIA H100" in shown.output


def test_a_kernel_takes_its_place(run, model, tmp_path):
    pytest.importorskip("triton")
    shown = CliRunner().invoke(main, ["fuse", str(run)]).output
    number = next(line for line in shown.splitlines() if "gated activation" in line).split(".")[0].strip()
    written = CliRunner().invoke(main, ["fuse", str(run), "--group", number, "-o", str(tmp_path)])
    assert written.exit_code == 0, written.output
    (path,) = tmp_path.glob("*.py")
    kernel, x = load(path, "own_gated_activation"), torch.randn(2, 16, 64)
    expected = model(x)
    kernel.apply(model)
    torch.testing.assert_close(model(x), expected)
    assert all("forward" in vars(each) for each in model)
    kernel.remove(model)


class Phases:
    """An emitter that keeps the names of ranges."""

    def __init__(self):
        self.names = []

    def push(self, name):
        self.names.append(name)

    def pop(self): ...


def test_the_step_that_verify_records_has_the_phases_of_the_graph(model):
    subject = Subject(model=model, settings=Settings(model="Own", gpu="h100"), inputs={"input": torch.randn(2, 16, 64)})
    phases = Phases()
    prepare(subject)(phases)
    graph = graph_of_subject(subject, hardware.find("h100"))
    assert {ranges.phase(node.phase) for node in graph.nodes} == set(phases.names)


def test_a_trace_without_the_ops_of_its_graph_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    graph = graphs.read(run / GRAPH)
    nodes = tuple(msgspec.structs.replace(node, phase="decode") for node in graph.nodes)
    (tmp_path / "other" / GRAPH).write_bytes(graphs.to_bytes(msgspec.structs.replace(graph, nodes=nodes)))
    with pytest.raises(InputError, match="graph is of another run"):
        tracekit.predict(tmp_path / "other", apply="fused:all")


def test_code_that_reads_values_has_no_written_kernels():
    settings = Settings(model="Reads", gpu="h100")
    with pytest.raises(InputError, match="Fake tensors cannot run the model"):
        with_written_kernels(Subject(model=Reads(), settings=settings, inputs={"x": torch.randn(2, 64)}), ())
