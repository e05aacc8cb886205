"""The names and the nesting of ranges, as emitted and as torch.profiler records them."""

import json

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tracekit.analyzers.trace import ranges
from tracekit.capture import ProfilerRanges, annotate, phase
from tracekit.capture.emitted_ranges import annotate_every_module, step


class Recorder:
    """Records pushes and pops in order, and ranges as paths of the open names."""

    def __init__(self):
        self.open, self.paths = [], []

    def push(self, name):
        self.open.append(name)
        self.paths.append(" > ".join(self.open))

    def pop(self):
        self.open.pop()


class Block(nn.Module):
    def __init__(self, fails=False):
        super().__init__()
        self.fails = fails
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if self.fails:
            raise ValueError("on purpose")
        return self.linear(x)


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(**options)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


ROOT = "module: (model) (Net)"
BLOCKS = [f"{ROOT} > module: blocks.{i} (Block)" for i in range(2)]
EXPECTED = [
    ROOT,
    BLOCKS[0],
    f"{BLOCKS[0]} > module: blocks.0.linear (Linear)",
    BLOCKS[1],
    f"{BLOCKS[1]} > module: blocks.1.linear (Linear)",
]


def test_ranges_nest_as_modules_do_and_containers_have_none():
    seen, net = Recorder(), Net()
    with annotate(net, seen):
        net(torch.ones(1, 4))
    assert seen.paths == EXPECTED
    assert seen.open == []


def test_hooks_are_removed():
    seen, net = Recorder(), Net()
    annotation = annotate(net, seen)
    annotation.remove()
    net(torch.ones(1, 4))
    assert seen.paths == []
    assert all(not module._forward_pre_hooks and not module._forward_hooks for module in net.modules())


def test_ranges_close_when_a_forward_raises():
    seen, net = Recorder(), Net(fails=True)
    with annotate(net, seen), pytest.raises(ValueError, match="on purpose"):
        net(torch.ones(1, 4))
    assert seen.paths == EXPECTED[:-1]
    assert seen.open == []


def test_ranges_stay_balanced_when_a_hook_of_others_raises_first():
    seen, net = Recorder(), Net()

    def refuse(*_):
        raise ValueError("on purpose")

    with annotate(net, seen):
        net.blocks[1].register_forward_pre_hook(refuse, prepend=True)
        with pytest.raises(ValueError, match="on purpose"):
            net(torch.ones(1, 4))
    assert seen.open == []


def test_a_profile_holds_nested_user_annotations(tmp_path):
    net, emitter = Net(), ProfilerRanges()
    recording = profile(activities=[ProfilerActivity.CPU])
    with recording, annotate(net, emitter), step(3, emitter), phase("prefill", emitter):
        net(torch.ones(1, 4))
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    parsed_ranges = [e for e in events if e.get("cat") == "user_annotation" and ranges.parse(e["name"])]
    parsed_ranges.sort(key=lambda e: e["ts"])
    assert [e["name"] for e in parsed_ranges] == [
        "step: 3",
        "phase: prefill",
        *(path.split(" > ")[-1] for path in EXPECTED),
    ]
    for name, inside in [("step: 3", "phase: prefill"), (ROOT, "module: blocks.1 (Block)")]:
        outer, inner = (next(e for e in parsed_ranges if e["name"] == wanted) for wanted in (name, inside))
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_ranges_are_emitted_as_nvtx_too(monkeypatch):
    nvtx = pytest.importorskip("nvtx.nvtx")
    pushed, popped = [], []
    monkeypatch.setattr(nvtx, "push_range", pushed.append)
    monkeypatch.setattr(nvtx, "pop_range", lambda: popped.append(1))
    net = Net()
    with annotate(net):
        net(torch.ones(1, 4))
    assert pushed == [path.split(" > ")[-1] for path in EXPECTED]
    assert len(popped) == len(pushed)


def test_every_module_names_the_first_root_plainly_and_others_by_class():
    seen, net, loss = Recorder(), Net(), nn.MSELoss()
    with annotate_every_module(seen):
        loss(net(torch.ones(1, 4)), torch.ones(1, 4))
        net(torch.ones(1, 4))
    assert seen.paths == [*EXPECTED, "module: MSELoss (MSELoss)", *EXPECTED]
    net(torch.ones(1, 4))
    assert len(seen.paths) == 11


def test_every_module_renames_what_a_later_root_holds():
    seen, net = Recorder(), Net()
    with annotate_every_module(seen):
        net.blocks[0](torch.ones(1, 4))
        seen.paths.clear()
        net(torch.ones(1, 4))
    assert [path.split(" > ")[-1] for path in seen.paths][:2] == ["module: Net (Net)", "module: Net.blocks.0 (Block)"]
    assert seen.open == []


def test_every_module_leaves_annotated_modules_to_their_own_ranges():
    own, every, net = Recorder(), Recorder(), Net()
    with annotate(net, own), annotate_every_module(every):
        nn.ReLU()(net(torch.ones(1, 4)))
    assert own.paths == EXPECTED
    assert every.paths == ["module: ReLU (ReLU)"]


def test_every_module_closes_its_ranges_when_a_forward_raises():
    seen = Recorder()
    with annotate_every_module(seen), pytest.raises(ValueError, match="on purpose"):
        Net(fails=True)(torch.ones(1, 4))
    assert seen.paths == EXPECTED[:-1]
    assert seen.open == []


def test_a_compiled_module_is_one_range_and_one_graph():
    graphs, seen = [], Recorder()
    compiled = torch.compile(Net(), backend=lambda graph, _: graphs.append(graph) or graph.forward)
    with annotate_every_module(seen):
        compiled(torch.ones(1, 4))
    assert len(graphs) == 1
    assert seen.paths == [ROOT]
    assert seen.open == []


def test_recomputed_modules_have_ranges_in_the_backward_pass_too():
    seen, net = Recorder(), Net()
    x = torch.ones(1, 4, requires_grad=True)
    with annotate(net, seen):
        checkpoint(net, x, use_reentrant=False).sum().backward()
    assert seen.paths == EXPECTED * 2


class Gated(nn.Module):
    """Has ops of its own beside those of a module within it, which also gets its input by keyword."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return {"out": (x * self.inner(input=x.sigmoid())).tanh()}


class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Gated(), Gated()

    def forward(self, x):
        return self.second(self.first(x.exp())["out"])["out"].sum()


def test_nsys_gets_the_module_of_each_backward_op(monkeypatch):
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    launched, emitter, model = [], ProfilerRanges(), Doubled()
    seen = Recorder()
    monkeypatch.setattr(emitter.backward, "_push", seen.push)
    monkeypatch.setattr(emitter.backward, "_pop", seen.pop)

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            launched.append((function.name(), seen.open[-1] if seen.open else ""))
            return function(*args, **(kwargs or {}))

    with annotate(model, emitter):
        for _ in range(2):
            launched.clear()
            loss = model(torch.ones(1, 4, requires_grad=True))
            with Ops():
                loss.backward()
    assert seen.open == []
    names = {op: [where for name, where in launched if name == op] for op in ("aten::mm", "aten::tanh_backward")}
    assert names["aten::tanh_backward"] == ["module: second (Gated)", "module: first (Gated)"]
    assert names["aten::mm"] == ["module: second.inner (Linear)"] * 2 + ["module: first.inner (Linear)"] * 2
    engine = {
        "aten::ones_like",
        "aten::add.Tensor",
        "aten::add_.Tensor",
        "aten::detach",
    }
    assert {name for name, where in launched if not where} <= engine
    assert ("aten::exp", "") not in launched and "module: (model) (Doubled)" in {where for _, where in launched}


def test_without_nsys_backward_has_no_ranges(monkeypatch):
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    assert ProfilerRanges().backward is None
