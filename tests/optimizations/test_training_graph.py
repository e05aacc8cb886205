"""Training steps as one graph: its prediction, what is refused, and its place in a plan."""

from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from op_lists import base
from started import started

from tracekit.advise import find
from tracekit.advise.optimization import Optimization
from tracekit.advise.search import Search
from tracekit.analyzers.predict import joined
from tracekit.apply.prepared_step import _as_before

TRACES = Path(__file__).parents[2] / "examples/traces"
GRAPH = find("training-graph")


@pytest.fixture(scope="module")
def training():
    return started(TRACES / "h200_gpt2_train.json.gz")


def test_the_host_leaves_the_step_and_the_kernels_stay(training):
    """The mask is built when captured, which is why some kernels differ."""
    after = GRAPH.applied(training, "expected")
    assert GRAPH.obstacle(training) is None
    assert after.ops.host_ns.sum() < 0.05 * training.ops.host_ns.sum()
    assert after.ops.kernel_ns.sum() == pytest.approx(training.ops.kernel_ns.sum(), rel=0.06)
    assert after.latency_ns >= after.busy_ns


def test_each_workload_has_its_graph(training):
    decode = started(TRACES / "h200_llama-1b_decode.json.gz")
    assert "does not train" in GRAPH.obstacle(decode)
    assert "see training-graph" in find("cuda-graphs").obstacle(training)
    assert "it is the same graph" in GRAPH.excludes["cuda-graphs"] + "."


def test_gpus_that_communicate_are_recorded_in_parts(training):
    ops = training.ops.assign(name=["nccl:all_reduce", *training.ops.name[1:]])
    named = replace(training, ops=ops.assign(name=["ncclDevKernel_AllReduce_Sum", *ops.name[1:]]))
    assert "communicate" in GRAPH.obstacle(named)


class Shorter(Optimization):
    """One column of the op list, a quarter as long."""

    title = "Shorter"

    def __init__(self, column):
        self.id = self.column = column

    def objection(self, base):
        return None

    def transform(self, base, outcome):
        return base.ops.assign(**{self.column: getattr(base.ops, self.column) / 4})

    def reason(self, base):
        return ()

    def apply(self, subject):
        return subject


def test_steps_that_gain_only_together_are_planned_together():
    """Kernels and launches take equally long, so that the step waits for both."""
    run = base(tokens=512, layers=4, precision="fp16")
    run = replace(run, ops=run.ops.assign(host_ns=run.ops.kernel_ns))
    search, both = Search(run), (Shorter("kernel_ns"), Shorter("host_ns"))
    assert all(search.gain((each,)).expected < 1.1 for each in both)
    assert {step.id for step in search._ranked((), list(both))} == {"kernel_ns", "host_ns"}


def test_capturing_leaves_the_weights_as_they_were():
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()

    def capture():
        with torch.no_grad():
            model.weight.add_(1)
        return "step"

    assert _as_before(model, capture) == "step"
    assert torch.equal(model.weight, before)


def test_results_that_are_read_after_the_kernels_stay_beside_the_graph(training):
    """A loop of .item() after the optimizer's step is no part of what a graph records."""
    ops = training.ops
    reads = ops[np.zeros(200, dtype=int)].assign(
        name=np.array(["aten::item"] * 200, dtype=object),
        category=np.array(["memcpy"] * 200, dtype=object),
        host_ns=np.full(200, 2e4),
        sync=np.ones(200, dtype=bool),
        index=ops.index.max() + 1 + np.arange(200),
    )
    run = replace(training, ops=joined(ops, reads))
    gained = GRAPH.applied(training, "expected").latency_ns, GRAPH.applied(run, "expected").latency_ns
    assert gained[1] > gained[0] + 200 * 1.9e4
