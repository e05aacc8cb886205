"""Ops that a step has on CUDA: attention kernels, fused dropout and softmax, launches per layer."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from tiny_models import settings_of

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import hardware
from tracekit.capture import complete, steps
from tracekit.capture.fake.cuda_calls import choose
from tracekit.run import Settings

HALF, FULL = torch.float16, torch.float32
EFFICIENT, MATH = "aten::_scaled_dot_product_efficient_attention", "aten::_safe_softmax"


@pytest.mark.parametrize(
    ("gpu", "dtype", "kv_heads", "head_dim", "mask", "expected"),
    [
        ("t4", FULL, 8, 64, False, "efficient"),
        ("t4", HALF, 8, 64, False, "efficient"),
        ("t4", HALF, 2, 64, False, "math"),
        ("t4", torch.bfloat16, 8, 64, False, "math"),
        ("a100", HALF, 8, 64, False, "flash"),
        ("a100", HALF, 2, 256, False, "flash"),
        ("a100", HALF, 8, 512, False, "efficient"),
        ("a100", HALF, 8, 64, True, "efficient"),
        ("a100", HALF, 2, 64, True, "math"),
        ("a100", FULL, 8, 64, False, "efficient"),
        ("a100", FULL, 2, 64, False, "math"),
        ("a100", torch.float64, 8, 64, False, "math"),
        ("h200", torch.bfloat16, 2, 64, False, "cudnn"),
        ("h200", torch.bfloat16, 2, 256, False, "flash"),
        ("h200", FULL, 8, 64, False, "efficient"),
    ],
)
def test_attention_backend(
    gpu: str, dtype: torch.dtype, kv_heads: int, head_dim: int, mask: bool, expected: str
) -> None:
    query = torch.empty(1, 8, 16, head_dim, dtype=dtype)
    key = torch.empty(1, kv_heads, 16, head_dim, dtype=dtype)
    assert choose(hardware.find(gpu), query, key, key, mask) == expected


@pytest.mark.parametrize(
    ("gpu", "dtype", "why"), [("t4", "fp16", "compute capability"), ("a100", "fp32", "half precision")]
)
def test_flash_is_refused_where_there_is_none(gpu: str, dtype: str, why: str, tmp_path: Path) -> None:
    settings = settings_of("gpt2", tmp_path, dtype=dtype)
    asked = settings.changed(attention="flash")
    with pytest.raises(TracekitError, match=why):
        steps.run(asked, hardware.find(gpu))


def test_flash_alone_runs_when_asked_for(tmp_path: Path) -> None:
    launched = _launched(settings_of("gpt2", tmp_path, dtype="bf16", attention="flash", gpu="h200"))
    assert launched["aten::_scaled_dot_product_flash_attention"] == 2
    assert launched["aten::_scaled_dot_product_cudnn_attention"] == 0


def test_flash_alone_cannot_run_with_a_mask(tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match="does not support masks"):
        _launched(settings_of("t5", tmp_path, dtype="bf16", attention="flash"))


def test_grouped_heads_in_fp32_take_the_math_path(tmp_path: Path) -> None:
    launched = _launched(settings_of("llama", tmp_path))
    assert launched[EFFICIENT] == 0
    assert (launched[MATH], launched["aten::bmm"]) == (2, 4)


def test_backward_of_attention_is_that_of_its_backend(tmp_path: Path) -> None:
    launched = _launched(settings_of("gpt2", tmp_path, workload="train"))
    assert (launched[EFFICIENT], launched[f"{EFFICIENT}_backward"]) == (2, 2)


def test_dropout_is_one_kernel_and_does_not_change_the_attention(tmp_path: Path) -> None:
    changes = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
    launched = _launched(settings_of("gpt2", tmp_path, changes, workload="train"))
    assert launched["aten::native_dropout"] == launched["aten::native_dropout_backward"] == 1 + 2 * 2
    assert launched[EFFICIENT] == 2
    assert launched["aten::bernoulli_"] == 0


def test_softmax_of_fp16_in_fp32_is_one_kernel(tmp_path: Path) -> None:
    half = _launched(settings_of("llama", tmp_path, dtype="fp16", attention="eager"))
    brain = _launched(settings_of("llama", tmp_path, dtype="bf16", attention="eager"))
    assert half["aten::_softmax"] == brain["aten::_softmax"] == 2
    assert brain["aten::_to_copy"] - half["aten::_to_copy"] == 2


def test_optimizer_runs_over_lists_and_counts_its_steps_on_the_host(tmp_path: Path) -> None:
    launched = _launched(settings_of("gpt2", tmp_path, workload="train"))
    updates = {name.removeprefix("aten::_foreach_"): n for name, n in launched.items() if "_foreach_" in name}
    assert updates == {"mul_": 2, "lerp_": 1, "addcmul_": 1, "sqrt": 1, "div_": 1, "add_": 1, "addcdiv_": 1}


def test_a_question_about_packed_sequences_waits_for_the_device(tmp_path: Path) -> None:
    recording = steps.run(settings_of("gpt2", tmp_path, workload="train"), hardware.find("a100")).recording
    waits = [call for call in recording.calls if call.copies]
    assert [(call.name, call.dtypes) for call in waits] == [("aten::_local_scalar_dense", '["bool"]')]


def test_a_sliding_window_is_moved_to_the_device_by_each_layer_and_waited_for() -> None:
    settings = complete(Settings(model="mistral-7b", gpu="h200", device="model", workload="prefill", dtype="bf16"))
    recording = steps.run(settings, hardware.find("h200")).recording
    calls = [recording.calls[call] for call in recording.call if call >= 0 and recording.calls[call].copies]
    assert [(call.name, call.copies) for call in calls] == [("aten::_to_copy", "to device")] * 32


@pytest.mark.parametrize(
    ("model", "workload", "attention", "published"),
    [
        ("gpt2", "decode", "eager", 24.4),
        ("gpt2", "decode", "sdpa", 19.6),
        ("bert-base-uncased", "prefill", "eager", 16.8),
        ("bert-base-uncased", "prefill", "sdpa", 12.8),
    ],
)
def test_launches_a_layer_are_those_counted_on_gpus(
    model: str, workload: str, attention: str, published: float
) -> None:
    settings = complete(Settings(model=model, gpu="h200", device="model", workload=workload, attention=attention))
    assert _launched(settings).total() / 12 == pytest.approx(published, abs=0.15)


def test_launching_ops_are_those_of_a_trace_from_an_h200(shared: Path) -> None:
    launched = _launched(
        complete(Settings(model="llama-3.2-1b", gpu="h200", device="model", workload="decode", dtype="bf16"))
    )
    real = _launched_in(shared / "traces" / "h200_llama-1b_bf16_decode.json.gz")
    names = ("mm", "add", "cat", "pow", "mean", "rsqrt", "neg", "silu", "arange", "cos", "sin")
    assert {name: launched[f"aten::{name}"] for name in names} == {name: real[f"aten::{name}"] for name in names}
    assert launched["aten::_scaled_dot_product_cudnn_attention"] == real["aten::_cudnn_attention_forward"]
    assert launched["aten::_to_copy"] == pytest.approx(real["aten::copy_"], abs=1)
    assert launched.total() == pytest.approx(real.total(), abs=1)


def _launched_in(path: Path) -> Counter[str]:
    """Return the ops of the trace's second step that launched a kernel."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    step = [event for event in events if event.get("cat") == "user_annotation"][1]
    inside = [event for event in events if "dur" in event and 0 <= event["ts"] - step["ts"] < step["dur"]]
    calls = [event for event in inside if event["cat"] in ("cuda_runtime", "cuda_driver")]
    launching = {call["args"].get("External id") for call in calls if re.search("Launch|Memcpy", call["name"])}
    ops = (event for event in inside if event["cat"] == "cpu_op")
    return Counter(op["name"] for op in ops if op["args"]["External id"] in launching)


def _launched(settings: Settings) -> Counter[str]:
    recording = steps.run(settings, hardware.find(settings.gpu)).recording
    names = (recording.calls[call] for call in recording.call if call >= 0)
    return Counter(call.name for call in names if call.launches)
