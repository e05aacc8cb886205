"""Layers that are one op on CUDA and several on the CPU, and scripts with what needs a GPU, modelled without one."""

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import cost_of_signature
from tracekit.analyzers.trace import load
from tracekit.answer import memory_of_run
from tracekit.capture.fake import cuda_calls
from tracekit.cli import main
from tracekit.profiling.profiled_run import profile_own

BATCH, STEPS, INPUTS, HIDDEN = 8, 32, 64, 128


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, *, reads=False, **options):
        super().__init__()
        self.layer, self.norm, self.reads = kind(INPUTS, HIDDEN, 2, batch_first=True, **options), nn.RMSNorm(64), reads

    def forward(self, x):
        out = self.layer(self.norm(x))[0]
        return out * 2 if self.reads and out.mean().item() > 0 else out


def modelled(model, folder, *, train=True):
    inputs = torch.randn(BATCH, STEPS, INPUTS)
    return profile_own(model, inputs, gpu="t4", device="model", train=train, steps=1, output=folder)


@pytest.mark.parametrize(
    ("kind", "gates", "reads", "both"),
    [(nn.LSTM, 4, False, False), (nn.LSTM, 4, True, False), (nn.GRU, 3, False, True)],
)
def test_recurrent_layers_are_one_op_each_way(tmp_path, kind, gates, reads, both):
    analysis = modelled(Recurrent(kind, reads=reads, bidirectional=both), tmp_path)
    work = analysis.work.set_index(analysis.work.op_name.astype(str))
    forward, backward = work.loc["aten::_cudnn_rnn"], work.loc["aten::_cudnn_rnn_backward"]
    directions = 1 + both
    widths = (INPUTS + HIDDEN) + (directions * HIDDEN + HIDDEN)
    assert forward.flops == directions * 2 * BATCH * STEPS * gates * HIDDEN * widths
    assert backward.flops == 2 * forward.flops
    assert {analysis.layers.path[each.layer] for each in (forward, backward)} == {"layer"}
    assert "mkldnn" not in " ".join(work.index) and analysis.coverage.cost > 0.99


def test_an_rms_norm_is_one_op_each_way(tmp_path):
    ops = set(modelled(Recurrent(), tmp_path).work.op_name.astype(str))
    assert {"aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"} <= ops


def test_the_gradients_of_an_rms_norm_are_those_of_torch():
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    ours, theirs = cuda_calls.rms_norm(x, (8,), weight, 1e-6), torch.rms_norm(x, (8,), weight, 1e-6)
    up = torch.randn(4, 8)
    for each, other in zip(
        torch.autograd.grad(ours, (x, weight), up), torch.autograd.grad(theirs, (x, weight), up), strict=True
    ):
        torch.testing.assert_close(each, other)


def test_a_recorded_packed_lstm_has_its_flops():
    shapes = "[[100,16],[[32,16],[32,8],[32],[32]],[],[],[1,4,8],[1,4,8],[],[],[],[],[],[],[],[],[],[]]"
    types = '["float","TensorList","Scalar","","float","float",' + ",".join(['"Scalar"'] * 8) + ',"ScalarList",""]'
    values = '["","","4","","","","2","8","0","1","False","0.","False","False","[25, 25, 25, 25]",""]'
    cost = cost_of_signature("aten::_cudnn_rnn", shapes, types, values)
    assert cost.flops == 2 * 100 * 32 * (16 + 8)


def test_nothing_to_train_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be trained"):
        modelled(nn.ReLU(), tmp_path)


def test_a_scripted_module_runs(tmp_path):
    scripted = torch.jit.script(nn.Linear(INPUTS, 8))
    assert modelled(scripted, tmp_path, train=False).work.flops.sum() >= 2 * BATCH * STEPS * INPUTS * 8


GAN = """
import torch
from torch import nn
assert torch.cuda.get_device_name(0)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
made, judge = nn.Linear(16, 4096), nn.Sequential(nn.Linear(4096, 8), nn.ReLU(), nn.Linear(8, 1))
updates = [torch.optim.Adam(each.parameters()) for each in (made, judge)]
start.record()
for _ in range(4):
    fake = made(torch.randn(64, 16).to("cuda"))
    judge(fake.detach()).mean().backward()
    updates[1].step()
    judge(fake).mean().backward()
    updates[0].step()
    for each in updates:
        each.zero_grad()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
"""


def run(folder, text):
    script = folder / "mine.py"
    script.write_text(text)
    return CliRunner().invoke(main, ["run", "--gpu", "t4", "--device", "model", "-o", str(folder / "out"), str(script)])


def test_the_two_updates_of_a_gan_are_one_step(tmp_path):
    done = run(tmp_path, GAN)
    assert done.exit_code == 0, done.output
    analysis = analyze(load(tmp_path / "out"))
    assert len(analysis.steps) == 4
    copies = analysis.work[analysis.work.category == "memcpy"]
    assert (copies.bytes.max(), copies.roof_fraction.max() < 1) == (4 * 64 * 16, True)


def test_a_script_without_ops_of_torch_is_told(tmp_path):
    done = run(tmp_path, "print(1)")
    assert done.exit_code == 1
    assert "nothing to model" in done.output + done.stderr


TRAINING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def train():
    for _ in range(3):
        model(torch.randn(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
train()
"""


def test_who_holds_the_memory_of_a_script(tmp_path):
    assert run(tmp_path, TRAINING).exit_code == 0
    peak = memory_of_run(tmp_path / "out").timeline.at_peak
    by_kind = peak.groupby("kind").bytes.sum()
    weights = 4 * (512 * 512 + 512 + 512 * 16 + 16)
    assert by_kind["weights"] == weights
    assert by_kind["optimizer state"] == pytest.approx(2 * weights, rel=0.01)
