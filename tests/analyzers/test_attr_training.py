"""Training in traces without our ranges: phases by autograd's numbers, its engine and torch.optim's ranges."""

import pytest
from handmade import Handmade

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.trace.ranges import phase


def iteration(made, at):
    """A forward op, its backward on another thread with a collective beside it, and the optimizer."""
    made.host("op", "aten::linear", at, 10, sequence=7).host("op", "aten::addmm", at + 1, 8, sequence=7)
    made.launched("gemm", at + 2, at + 5, 3)
    back = {"thread": 1, "sequence": 7}
    made.host("op", "autograd::engine::evaluate_function: AddmmBackward0", at + 12, 10, **back)
    made.host("op", "AddmmBackward0", at + 13, 8, forward_thread=1, **back)
    correlation = 1000 + at
    made.host("runtime", "cudaLaunchKernel", at + 14, 1, thread=1, correlation=correlation)
    made.device("gemm_backward", at + 15, 6, correlation=correlation)
    made.host("runtime", "cudaLaunchKernel", at + 23, 1, thread=1, correlation=correlation + 1)
    made.device("ncclDevKernel_AllReduce", at + 24, 4, correlation=correlation + 1)
    made.host("range", "Optimizer.step#SGD.step", at + 30, 10).host("op", "aten::_foreach_add_", at + 31, 5)
    made.launched("multi_tensor", at + 32, at + 35, 2)
    return made.launched("Memcpy HtoD", at + 45, at + 48, 1, category="memcpy", bytes=8)


@pytest.fixture
def analysis():
    made = Handmade()
    for i in range(3):
        iteration(made, 100 * i)
    return analyze(made.trace())


def test_phases_are_told_by_ops(analysis):
    assert analysis.source.trains
    phases = analysis.phases.set_index("name")
    assert phases["busy_ns"].to_dict() == {
        "forward": 9_000,
        "backward": 30_000,
        "optimizer": 6_000,
        "(no phase)": 2_000,
    }
    assert phases["calls"].to_dict() == {"forward": 3, "backward": 3, "optimizer": 3, "(no phase)": 0}
    assert phases["wall_ns"]["backward"] == 3 * 9_000


def test_a_forward_pass_in_grad_mode_is_no_training():
    made = Handmade().host("op", "aten::linear", 0, 10, sequence=7).launched("gemm", 2, 5, 3)
    analysis = analyze(made.trace())
    assert not analysis.source.trains
    assert analysis.phases.empty


def test_ranges_of_ours_come_first():
    made = iteration(Handmade(), 0).host("range", phase("forward"), 0, 60)
    assert analyze(made.trace()).phases["name"].tolist() == ["forward"]


@pytest.mark.parametrize(
    "name",
    [
        "advice/h100_resnet-dataloader",
        "advice/mi300_resnet-train",
        "traces/a100_resnet-ddp_nccl",
        "traces/v100_resnet-ddp_float-ts",
        "traces/ranks/rank-0",
    ],
)
def test_traces_of_training_of_others(shared, name):
    analysis = tracekit.analyze(shared / f"{name}.json.gz")
    assert analysis.source.trains
    busy = analysis.phases.set_index("name")["busy_ns"]
    assert busy["backward"] > busy["forward"] > 0
    assert busy["optimizer"] > 0


@pytest.mark.parametrize("name", ["h100_bert-small", "h100_qwen1.5-0.5b", "h200_llama-1b_bf16_decode"])
def test_traces_of_inference_of_others(shared, name):
    assert not tracekit.analyze(shared / "traces" / f"{name}.json.gz").source.trains
