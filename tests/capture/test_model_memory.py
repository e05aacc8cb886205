"""Peak memory of runs on fake tensors."""

from pathlib import Path

import torch
from tiny_models import settings_of
from torch._subclasses import FakeTensorMode

from tracekit.analyzers.cost import hardware
from tracekit.capture import complete, steps
from tracekit.capture.fake.tensors import LiveMemory
from tracekit.run import Settings


def test_a_storage_counts_once_and_until_it_is_freed() -> None:
    memory = LiveMemory()
    with FakeTensorMode():
        first = torch.empty(1000)
        memory.add([first, first.view(10, 100), first[:10]])
        second = torch.empty(500, dtype=torch.float16)
        memory.add([second])
        assert (memory.live_bytes, memory.peak_bytes) == (5000, 5000)
        del second
        memory.add([torch.empty(50)])
    assert (memory.live_bytes, memory.peak_bytes) == (4000, 5000)


def test_training_holds_weights_gradients_and_two_moments(tmp_path: Path) -> None:
    run = steps.run(settings_of("gpt2", tmp_path, workload="train", seq_len=1), hardware.find("a100"))
    assert run.weight_bytes == 4 * run.parameters
    assert 4 * run.weight_bytes < run.recording.peak_bytes < 5.5 * run.weight_bytes


def test_decode_of_a_7b_model_holds_its_weights_and_its_cache() -> None:
    settings = complete(
        Settings(model="mistral-7b", gpu="a100", device="model", workload="decode", dtype="fp16", seq_len=4000)
    )
    run = steps.run(settings, hardware.find("a100"))
    cache = 32 * 2 * 8 * 4000 * 128 * 2  # layers, keys and values, heads, tokens, head size, bytes
    assert run.parameters == 7_241_732_096
    assert run.weight_bytes == 2 * run.parameters
    grown = run.recording.peak_bytes - run.weight_bytes
    assert 2 * cache < grown < 2.05 * cache  # the cache grows into a copy
