"""Captures name the line of the program that waits for the device."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import tracekit
from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.trace import load
from tracekit.capture.wrapped_calls import _READS, _public_path, named_waits
from tracekit.cli import main

SCRIPT = """
import torch

net = torch.nn.Linear(8, 8)

def train():
    total = 0.0
    for _ in range(3):
        loss = net(torch.ones(2, 8)).sum()
        total += loss.item()
    return total

train()
"""
ITEM = "train.py:10"


def test_a_script_names_the_line_that_reads_a_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = CliRunner().invoke(main, ["run", "--device", "cpu", "-o", "out", "train.py"])
    assert done.exit_code == 0, done.output
    analysis = analyze(load(tmp_path / "out"))
    place = analysis.places[analysis.places.counter == "scalar-reads"].iloc[0]
    assert (place.function, place.location, place["count"]) == ("train.train", ITEM, 1)
    assert not any("frame" in str(path) for path in analysis.layers.path)


@pytest.fixture
def plain():
    return {name: vars(torch.Tensor).get(name) for name in (*_READS, "to")} | {"synchronize": torch.cuda.synchronize}


def now():
    return {name: vars(torch.Tensor).get(name) for name in (*_READS, "to")} | {"synchronize": torch.cuda.synchronize}


def test_nothing_is_replaced_after_the_block(tmp_path, plain):
    with pytest.raises(KeyError), tracekit.capture(tmp_path):
        nn.ReLU()(torch.ones(2)).tolist()
        assert now() != plain
        raise KeyError
    assert now() == plain


def test_an_exception_of_the_call_passes_through_and_the_next_call_is_named(tmp_path):
    with tracekit.capture(tmp_path):
        with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
            torch.ones(2).item()
        assert torch.ones(1).item() == 1.0
        assert bool(torch.ones(1)) and int(torch.ones(1)) == 1 and torch.ones(2).tolist() == [1.0, 1.0]
    host = load(tmp_path).host
    frames = host[host.category == "python"]
    assert len(frames) == 5 and frames.name.astype(str).str.contains(r"test_named_waits\.py\(\d+\): test_an_exc").all()


def test_code_that_looks_up_functions_of_torch_finds_them():
    seen = []
    table = {torch.Tensor.item: "read"}

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(table.get(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    with named_waits():
        assert torch.ones(1).as_subclass(Own).item() == 1.0
    assert "read" in seen


def double(x):
    return x.double().cpu().to("cpu").to(x) * 2


def read(x):
    return x.to(torch.float64) * x.sum().item()


def choose(x):
    return x.numpy() + int(x.sum() > 0)


@pytest.mark.parametrize("code", [double, read, choose])
@pytest.mark.parametrize("before", [False, True])
def test_code_is_compiled_as_without_a_capture(tmp_path, code, before):
    def frames(context):
        torch._dynamo.reset()
        compiled = torch.compile(code, backend="eager")
        if before:
            compiled(torch.ones(2))
        torch._dynamo.utils.counters.clear()
        with context:
            result = compiled(torch.ones(2))
        return list(result), {name: dict(counts) for name, counts in torch._dynamo.utils.counters.items()}

    assert frames(tracekit.capture(tmp_path)) == frames(nullcontext())


def test_paths_hold_no_folder_of_the_machine():
    roots = (Path("/home/me/project"), Path("/usr/lib/python3.11"))
    assert _public_path("/home/me/project/a/train.py", roots) == "a/train.py"
    assert _public_path("/opt/venv/lib/site-packages/models/net.py", roots) == "models/net.py"
    assert _public_path("/home/other/secret/tool.py", roots) == "tool.py"
    assert _public_path("/opt/venv/lib/site-packages/torch/nn/modules/module.py", roots) == ""
