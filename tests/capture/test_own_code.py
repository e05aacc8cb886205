"""The user's code, modelled for a GPU without having one: scripts, blocks and modules."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.profiler import record_function

import tracekit
from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.predict import baseline
from tracekit.analyzers.trace import load
from tracekit.capture.capture_session import session
from tracekit.cli import main
from tracekit.profiling.profiled_run import profile_own

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2_from_scratch.py"
SMALL = ["--train", *["--layers", "2", "--width", "64", "--heads", "2", "--length", "32", "--vocabulary", "200"]]
ATTENTION = ["qkv projection", "split heads", "scores", "scale and mask", "softmax", "weighted values", "merge heads"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Return the example's run, modelled for a T4."""
    folder = tmp_path_factory.mktemp("gpt2")
    command = ["run", "--gpu", "t4", "--device", "model", "-o", str(folder), str(EXAMPLE), *SMALL]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "ran on the CPU" in done.stderr
    return analyze(load(folder))


def part_of(analysis, inside):
    return analysis.layer_parts[analysis.layer_parts.inside == inside].set_index("part")


def test_the_marked_parts_of_attention_and_mlp_are_eight_and_three_rows(gpt2):
    attention, mlp = part_of(gpt2, "Attention"), part_of(gpt2, "MLP")
    assert attention.index.tolist() == [*ATTENTION, "output projection"]
    assert mlp.index.tolist() == ["up", "gelu", "down"]
    for parts in (attention, mlp):
        assert parts.share_inside.sum() == pytest.approx(1.0)
        assert (parts.calls == 6).all() and (parts.layers == 2).all()
        assert (parts.forward_ns > 0).all() and (parts.forward_ns + parts.backward_ns == parts.busy_ns).all()
    assert (attention.backward_ns[["qkv projection", "scores", "softmax"]] > 0).all()
    products = 3 * 2 * 3 * 2  # 3 steps, 2 layers, 3 in both passes, 2 heads
    assert attention.flops["scores"] == products * 2 * 32 * 32 * 32


def test_a_modelled_script_has_its_steps_phases_and_memory(gpt2):
    capture = gpt2.source.capture
    assert (capture.source, capture.recorded_on, capture.gpu, capture.workload) == ("modelled", "cpu", "t4", "train")
    assert len(gpt2.steps) == 3
    assert {"forward", "backward", "optimizer"} <= set(gpt2.phases.name)
    weights = 2 * (200 * 64) + 32 * 64 + 2 * (64 * 192 + 192 + 64 * 64 + 64 + 8 * 64 * 64 + 5 * 64 + 4 * 64) + 2 * 64
    assert capture.parameters == weights
    assert capture.peak_memory_bytes > 4 * 4 * weights
    of_steps = gpt2.work[gpt2.work.step >= 0]  # before the first step, weights are copied to the GPU
    assert of_steps.duration_ns.sum() == gpt2.layer_ops.duration_ns.sum() > 0


def test_initial_weights_and_step_counters_stay_on_the_host(gpt2):
    assert not gpt2.ops.name.isin(["aten::uniform_", "aten::normal_"]).any()
    copies = gpt2.work[gpt2.work.category == "memcpy"]
    assert copies.name.astype(str).str.contains("HtoD").all()
    assert (copies.step >= 0).sum() <= 3  # the batch of each step


@pytest.mark.parametrize("training", [True, False])
def test_multi_head_attention_of_torch_is_fused(tmp_path, training):
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).train(training)
    with tracekit.capture(tmp_path, gpu="a100", device="model"), torch.set_grad_enabled(training):
        layer(torch.randn(2, 32, 64)).sum()
    ops = set(analyze(load(tmp_path)).work.op_name)
    assert {"aten::_scaled_dot_product_efficient_attention"} < ops and "aten::bmm" not in ops


def reads_its_loss():
    net = nn.Sequential(*(nn.Conv2d(64, 64, 3) for _ in range(4)))
    for _ in range(3):
        loss = net(torch.randn(32, 64, 64, 64)).square().mean()
        loss.backward()
        loss.item()


def test_the_wait_for_a_value_is_no_work_of_the_host(tmp_path):
    with tracekit.capture(tmp_path, gpu="t4", device="model"):
        reads_its_loss()
    trace = load(tmp_path)
    step = baseline(trace, analyze(trace))
    assert step.ops.kernel_ns.sum() > 0.9 * step.latency_ns
    assert step.ops.host_ns.sum() < 0.1 * step.latency_ns


def test_it_says_how_many_ops_are_modelled(tmp_path):
    said = []
    with session(tmp_path, gpu="t4", device="model", say=said.append), torch.no_grad():
        nn.ReLU()(torch.ones(8))
    (line,) = (line for line in said if "modelling" in line)
    assert f"modelling its {len(ops_of(load(tmp_path)))} ops" in line


def ops_of(trace):
    return trace.host[(trace.host["category"] == "op") & trace.host["name"].astype(str).str.startswith("aten::")]


class Net(nn.Module):
    def __init__(self, branches=False):
        super().__init__()
        self.linear, self.branches = nn.Linear(64, 64), branches

    def forward(self, x):
        with record_function("gate"):
            x = Gate.apply(self.linear(x))
        return x * 2 if self.branches and x.mean().item() > 0 else x


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return torch.ops.tests_own_code.scaled(x, 2.0) * torch.sigmoid(x)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * torch.sigmoid(x)


@torch.library.custom_op("tests_own_code::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


scaled.register_fake(lambda x, _: torch.empty_like(x))


@pytest.mark.parametrize(("branches", "recorded"), [(False, "fake tensors"), (True, "cpu")])
def test_a_module_is_modelled_and_left_as_it_was(tmp_path, branches, recorded):
    net, said = Net(branches), []
    weights, inputs = net.linear.weight.clone(), torch.randn(8, 64)
    analysis = profile_own(net, inputs, gpu="t4", device="model", train=True, output=tmp_path, say=said.append)
    capture = analysis.source.capture
    assert (capture.recorded_on, capture.workload, capture.batch_size) == (recorded, "train", 8)
    assert any("runs on the CPU" in line for line in said) == branches
    assert torch.equal(net.linear.weight, weights) and net.linear.weight.grad is None
    gate = part_of(analysis, "Net").loc["gate"]
    assert gate.forward_ns > 0 and gate.backward_ns > 0
    assert "tests_own_code::scaled" in set(analysis.layer_ops.op)
    assert analysis.latency.unprofiled.median_us > 0


def test_compiled_modules_and_cuda_devices_in_a_block(tmp_path):
    net = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))
    with tracekit.capture(tmp_path, gpu="t4", device="model") as capture:
        net = net.cuda().to("cuda")
        x = torch.ones(4, 16, device="cuda", dtype=torch.float32)
        with capture.step(), torch.autocast("cuda", dtype=torch.bfloat16), torch.cuda.nvtx.range("evaluation"):
            assert net(x).dtype == torch.bfloat16
            torch.cuda.synchronize()
    analysis = analyze(load(tmp_path))
    assert "modelled-uncompiled" in set(analysis.problems.code)
    assert analysis.layers.path.tolist()[:3] == ["(model)", "0", "1"]
    assert set(analysis.work[analysis.work.family == "gemm"].precision) == {"bf16"}
    assert "evaluation" in set(analysis.ranges.name)
    assert len(analysis.steps) == 1


def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


@pytest.mark.parametrize("wrap", [torch.compile, lambda function: function])
def test_a_program_that_is_modelled_without_its_compiler_says_so(tmp_path, wrap, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for function, name in ((lambda x: 2 * (x + 1), "before"), (broken, "after")):
        called = wrap(function)
        with tracekit.capture(tmp_path / name, gpu="t4", device="model") as capture, capture.step():
            called(torch.ones(4, 16, device="cuda"))
    compiled = wrap is torch.compile
    assert ("modelled-uncompiled" in set(analyze(load(tmp_path / "after")).problems.code)) == compiled
    checked = CliRunner().invoke(main, ["check", "after", "--against", "before"])
    assert ("modelled without it: a new graph break" in " ".join(checked.output.split())) == compiled


def test_ranges_are_layers_on_the_cpu(tmp_path):
    with tracekit.capture(tmp_path):
        Net()(torch.ones(2, 64))
    layers = analyze(load(tmp_path)).layers
    assert layers.path.tolist()[:3] == ["(model)", "(model)/gate", "linear"]
    assert layers.parent.tolist()[:3] == [-1, 0, 1]


class Marked(nn.Module):
    def forward(self, x):
        nvtx = pytest.importorskip("nvtx")
        with nvtx.annotate("square", color="red"), torch.cuda.nvtx.range("times {}", 2):
            x = x * x
        nvtx.push_range("sum", domain="mine")
        x = x + nvtx.annotate()(self.double)(x)
        nvtx.pop_range()
        opened = torch.cuda.nvtx.range_push(msg="halve")
        x = x / 2
        assert (opened, torch.cuda.nvtx.range_pop()) == (0, 0)
        torch.cuda.nvtx.range_pop()  # none is open
        return x

    def double(self, x):
        return 2 * x


@pytest.mark.parametrize("modelled", [{}, {"gpu": "t4", "device": "model"}])
def test_nvtx_ranges_of_torch_and_of_the_package_are_layers(tmp_path, modelled):
    nvtx = pytest.importorskip("nvtx")
    before = nvtx.push_range, nvtx.annotate.__enter__
    with tracekit.capture(tmp_path, **modelled):
        Marked()(torch.ones(2, 64, device="cpu"))
    assert (nvtx.push_range, nvtx.annotate.__enter__) == before
    paths = analyze(load(tmp_path)).layers.path.tolist()
    inside = ["square", "square/times 2", "sum", "sum/double", "halve"]
    assert [path for path in paths if path.startswith("(model)/")] == [f"(model)/{name}" for name in inside]


def test_a_gpu_that_cannot_be_projected_to_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be projected"):
        tracekit.capture(tmp_path, gpu="t4", device="cpu")
    with pytest.raises(InputError, match="No GPU is named"):
        tracekit.capture(tmp_path, device="model")


def test_layer_ops_as_csv(gpt2):
    from io import StringIO

    from tracekit.reports.answer.export import to_csv

    table = pd.read_csv(StringIO(to_csv(gpt2, "layer_ops")))
    scores = table[table.layer == "blocks.1.attention/scores"]
    assert set(scores.op) >= {"aten::bmm"}
    assert set(scores.phase) == {"forward", "backward"}
