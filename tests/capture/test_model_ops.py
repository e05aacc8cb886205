"""The ops recorded on fake tensors are those that torch.profiler records when the same step runs."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import settings_of
from torch.profiler import ProfilerActivity, profile

from tracekit.analyzers.cost import hardware
from tracekit.capture import NoRanges, Recording, models, steps, workloads
from tracekit.capture.fake.recording import OpCall
from tracekit.run import Settings

Call = tuple[str, str, str, str]

CUDA_ONLY = ("aten::_scaled_dot_product", "aten::scaled_dot_product", "aten::_foreach_add_", "aten::zero_")
"""Left out: attention, whose kernels differ on a GPU, the optimizer's step count, which is on the host, and the zeros
of a loss's gradient, which its op writes."""
BEGUN = ("aten::_softmax_backward_data", "aten::convolution_backward")
LONGEST_LIST = 30
"""The profiler records longer lists of tensors without their shapes."""


@pytest.mark.parametrize(
    ("model", "workload", "attention", "dtype"),
    [
        ("gpt2", "decode", "sdpa", "fp32"),
        ("gpt2", "train", "eager", "fp32"),
        ("llama", "prefill", "eager", "bf16"),
        ("llama", "generate", "sdpa", "bf16"),
        ("bert", "prefill", "sdpa", "fp32"),
        ("t5", "decode", "eager", "fp32"),
        ("vit", "train", "eager", "fp32"),
    ],
)
def test_ops_are_those_of_a_real_run(model: str, workload: str, attention: str, dtype: str, tmp_path: Path) -> None:
    settings = settings_of(model, tmp_path, workload=workload, attention=attention, dtype=dtype, new_tokens=3)
    recording = steps.run(settings, hardware.find("a100")).recording
    calls = [recording.calls[call] for call in recording.call if call >= 0 and recording.calls[call].launches]
    same = [call for call, after in zip(calls, [*calls[1:], calls[0]], strict=True) if not _only_on_cuda(call, after)]
    recorded = Counter(_key(c.name, c.shapes, c.dtypes, c.values) for c in same)
    assert recorded == _really_run(settings, tmp_path, {key[0] for key in recorded})
    assert recorded.total() > 25


def _only_on_cuda(call: OpCall, after: OpCall) -> bool:
    """Return whether the CPU has no such call; some gradients begin with a product or a copy on CUDA."""
    return call.name.startswith(CUDA_ONLY) or after.name in BEGUN


def test_a_differentiable_op_carries_the_number_that_its_backward_carries(tmp_path: Path) -> None:
    recording = _train(tmp_path)
    forward = {
        number: recording.calls[recording.call[at]].name for at, number in enumerate(recording.sequence) if number >= 0
    }
    named = {"AddmmBackward0": "aten::addmm", "NativeLayerNormBackward0": "aten::native_layer_norm"}
    pairs = [(node.name, forward[node.sequence]) for node in recording.nodes if node.name in named]
    assert Counter(pairs) == Counter(
        {("AddmmBackward0", "aten::addmm"): 8, ("NativeLayerNormBackward0", "aten::native_layer_norm"): 5}
    )


def test_what_a_gpu_runs_as_kernels_of_its_own_is_recorded_so(tmp_path: Path) -> None:
    recording = steps.run(settings_of("llama", tmp_path, workload="train"), hardware.find("a100")).recording
    calls = [recording.calls[call].name for call in recording.call if call >= 0 and recording.calls[call].launches]
    assert calls.count("aten::silu_backward") == calls.count("aten::silu") > 0
    assert calls[calls.index("aten::nll_loss_backward") - 1] == "aten::zero_"


def test_only_ops_inside_the_backward_phase_belong_to_its_nodes(tmp_path: Path) -> None:
    recording = _train(tmp_path)
    backward = next(each for each in recording.ranges if each.name == "phase: backward")
    inside = [at for at, node in enumerate(recording.node) if node >= 0]
    assert backward.opens < min(inside) and max(inside) < backward.closes


def _train(folder: Path) -> Recording:
    return steps.run(settings_of("gpt2", folder, workload="train"), hardware.find("a100")).recording


def _really_run(settings: Settings, folder: Path, names: set[str]) -> Counter[Call]:
    """Return the calls of these ops in one step on the CPU after a warm-up step, with the optimizer of a GPU."""
    model = models.build_for(settings)
    step = workloads.prepare(model, settings.changed(device="model"))
    step(NoRanges())
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(NoRanges())
    profiler.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    ops = sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"]))
    return Counter(_keys_of(ops, names))


def _keys_of(ops: list[dict[str, Any]], names: set[str]) -> Iterator[Call]:
    """Return the calls that are neither part of another call nor of attention."""
    done = 0.0
    for op in ops:
        name, args = _name(op["name"]), op["args"]
        if "Scalar" in str(args.get("Input type")) and name == "aten::where":
            continue  # made of a scalar_tensor and a where of tensors
        if op["ts"] >= done and (name in names or name.startswith(CUDA_ONLY)):
            done = op["ts"] + op["dur"]
            if name in names:
                yield _key(name, *(_text(args[each]) for each in ("Input Dims", "Input type", "Concrete Inputs")))


def _key(name: str, shapes: str, dtypes: str, values: str) -> Call:
    long = any(len(shape) > LONGEST_LIST for shape in json.loads(shapes))
    return (name, "", "", "") if long or name.startswith("aten::_foreach") else (_name(name), shapes, dtypes, values)


def _name(name: str) -> str:
    """Return the op's name. Gradients are added in place when tensors are real."""
    return "aten::add" if name == "aten::add_" else name


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
