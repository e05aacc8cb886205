"""The graph of a run that was measured on a GPU is recorded as that of a modelled run. Fake tensors on `cuda` exist
without a GPU."""

import json
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from tiny_models import settings_of
from torch import nn
from torch._subclasses import FakeTensorMode

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.apply import Subject
from tracekit.apply.written_kernels import graph_of_subject
from tracekit.capture import OwnModel, models
from tracekit.capture.fake import cuda_ops
from tracekit.fuse import run_graph
from tracekit.profiling import profiled_run, write_outputs
from tracekit.reports.answer.export import to_json
from tracekit.run import ANALYSIS, GRAPH, REPORT, RUN, TRACE

H100 = hardware.find("h100")


@pytest.mark.parametrize("workload", ["prefill", "decode", "generate", "train"])
def test_a_measured_run_has_the_graph_of_a_modelled_one(tmp_path, workload):
    modelled = settings_of("llama", tmp_path, workload=workload, new_tokens=2, gpu="h100")
    measured = modelled.changed(device="cuda")
    expected = run_graph.graph_of_settings(modelled, H100)
    assert expected.nodes
    assert run_graph.graph_of_settings(measured, H100) == expected
    model = models.build_for(modelled)
    assert graph_of_subject(Subject(model=model, settings=measured), H100) == expected


class Shifted(nn.Module):
    """Its code names the device of a tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 8)
        self.last.weight = nn.Parameter(self.last.weight.detach())
        self.register_buffer("scale", torch.ones(16))

    def forward(self, x):
        shift = torch.zeros(16, device="cuda").cuda().to("cuda:0")
        return self.last(nn.functional.gelu(self.first(x)) * self.scale + shift)


@pytest.mark.parametrize("train", [False, True])
def test_a_module_on_a_gpu_has_the_graph_of_one_on_the_cpu(train):
    here, there, x = Shifted(), Shifted(), torch.randn(2, 4, 8)
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in there.modules():
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                kept = module._parameters if name in module._parameters else module._buffers
                made = torch.empty(tensor.shape, device="cuda")
                kept[name] = nn.Parameter(made) if name in module._parameters else made
        y = torch.empty(2, 4, 8, device="cuda")
    assert {each.device.type for each in (*there.parameters(), *there.buffers(), y)} == {"cuda"}
    expected = run_graph.graph_of_module(OwnModel(here, x, train), H100)
    assert len(expected.nodes) > 4
    assert run_graph.graph_of_module(OwnModel(there, y, train), H100) == expected


def test_the_recorder_refuses_a_tensor_that_is_elsewhere():
    with FakeTensorMode():
        tensors = [torch.empty(2), torch.empty(2, device="cuda")]
    cuda_ops.check(torch.ops.aten.add.Tensor, tensors[:1])
    with pytest.raises(InputError, match="aten::add on cuda cannot be modelled"):
        cuda_ops.check(torch.ops.aten.add.Tensor, tensors)


def test_a_graph_that_cannot_be_kept_costs_a_line(tmp_path, monkeypatch):
    settings = settings_of("gpt2", tmp_path, device="cpu", gpu="", output=str(tmp_path / "run"))
    written, said = [], []

    def fails(*_):
        written.extend(each.name for each in (tmp_path / "run").iterdir())
        raise RuntimeError("two different devices cpu, cuda:0\nand more")

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / GRAPH).write_bytes(b"of another run")
    monkeypatch.setattr(run_graph, "graph_of_settings", fails)
    analysis = profiled_run.run(settings.changed(gpu="h100"), said.append)
    assert analysis.latency.unprofiled.median_us > 0
    assert {TRACE, RUN, ANALYSIS, REPORT} <= set(written)
    assert GRAPH not in written
    assert said[-1:] == ["no graph of its ops was kept: RuntimeError: two different devices cpu, cuda:0"]


def test_a_graph_that_is_kept_gives_the_outputs_its_plan(tmp_path):
    settings = settings_of("llama", tmp_path, gpu="h100", output=str(tmp_path / "run"))
    planned = profiled_run.run(settings).fusion_plan
    run_graph.forget(settings.folder)
    guessed = write_outputs(settings.folder)
    assert not guessed.fusion_plan.equals(planned)
    graph = partial(run_graph.graph_of_settings, settings.changed(device="cuda"), H100)
    analysis = profiled_run.added(guessed, settings.folder, graph, pytest.fail)
    assert analysis.fusion_plan.equals(planned)
    assert (
        json.loads((settings.folder / ANALYSIS).read_bytes())["fusion_plan"]
        == json.loads(to_json(analysis))["fusion_plan"]
    )
