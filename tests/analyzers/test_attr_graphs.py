"""Kernels of CUDA graphs are assigned to the captured ops."""

from pathlib import Path

import numpy as np
import pytest
from handmade import Handmade, addmm

from tracekit.analyzers import analyze
from tracekit.analyzers.trace import load
from tracekit.analyzers.trace.ranges import step

SAMPLE = Path(__file__).parents[2] / "examples/traces/h200_compile-and-graph.json.gz"


def capture(made, at, calls, thread=0):
    """Return a capture of 100 us with one op per (name, call), each in a range of its own; its launch does no work."""
    made.host("runtime", "cudaStreamBeginCapture", at, 1, thread=thread, correlation=9000 + at)
    for i, (name, call, values) in enumerate(calls):
        start = at + 10 + 10 * i
        made.host("range", f"module: {name} (Layer)", start, 9, thread=thread)
        made.host("op", f"aten::{name}", start + 1, 7, thread=thread, **values)
        made.host("runtime", call, start + 2, 1, thread=thread, correlation=9100 + start)
    made.host("runtime", "cudaStreamEndCapture", at + 100, 1, thread=thread, correlation=9200 + at)


def replay(made, at, correlation, kernels, **values):
    made.host("runtime", "cudaGraphLaunch", at, 2, correlation=correlation)
    for i, (name, category) in enumerate(kernels):
        made.device(name, at + 10 + 10 * i, 8, category=category, correlation=correlation, **values)


CALLS = [
    ("fill", "cudaMemsetAsync", {}),
    ("addmm", "cudaLaunchKernel", addmm(64, 32, 16)),
    ("relu", "cuLaunchKernel", {}),
]
KERNELS = [("Memset (Device)", "memset"), ("gemm", "kernel"), ("vectorized", "kernel")]


def ops(trace, analysis):
    names = trace.host["name"].astype(object).to_numpy()
    return [names[row] if row >= 0 else None for row in analysis.work["op"]]


def layers(analysis):
    return [analysis.layers["path"][row] if row >= 0 else None for row in analysis.work["layer"]]


def codes(analysis):
    return dict(zip(analysis.problems["code"], analysis.problems["count"], strict=True))


def test_each_node_of_a_graph_comes_from_its_captured_op():
    made = Handmade()
    capture(made, 0, CALLS)
    replay(made, 200, 1, KERNELS)
    replay(made, 300, 2, KERNELS)
    trace = made.trace()
    analysis = analyze(trace)
    assert ops(trace, analysis) == ["aten::fill", "aten::addmm", "aten::relu"] * 2
    assert layers(analysis) == ["fill", "addmm", "relu"] * 2
    assert analysis.work["graph"].tolist() == [1] * 6
    assert "graph-not-mapped" not in codes(analysis)


def test_a_captured_op_costs_as_much_in_every_replay():
    made = Handmade()
    capture(made, 0, CALLS)
    replay(made, 200, 1, KERNELS)
    replay(made, 300, 2, KERNELS)
    work = analyze(made.trace()).work
    flops = 2 * 64 * 32 * 16 + 64 * 16
    assert work["flops"][work["name"] == "gemm"].tolist() == [pytest.approx(flops, rel=0.05)] * 2
    assert work["flops"][work["name"] == "gemm"].nunique() == 1


def test_nodes_are_ordered_by_their_ids_where_they_are_recorded():
    made = Handmade()
    capture(made, 0, [CALLS[1], CALLS[2]])
    made.host("runtime", "cudaStreamWaitEvent", 40, 1, correlation=5)
    made.host("runtime", "cudaGraphLaunch", 200, 2, correlation=1)
    made.device("second", 210, 5, correlation=1, graph=4, graph_node=12)
    made.device("first", 220, 5, correlation=1, graph=4, graph_node=11)
    trace = made.trace()
    analysis = analyze(trace)
    assert ops(trace, analysis) == ["aten::relu", "aten::addmm"]
    assert analysis.work["graph"].tolist() == [4, 4]


def test_without_node_ids_a_forked_capture_stays_unmapped():
    made = Handmade()
    capture(made, 0, CALLS)
    made.host("runtime", "cudaStreamWaitEvent", 45, 1, correlation=5)
    replay(made, 200, 1, KERNELS)
    analysis = analyze(made.trace())
    assert codes(analysis)["graph-not-mapped"] == 3
    assert analysis.work["captured"].tolist() == [-1] * 3


@pytest.mark.parametrize("kernels", [KERNELS[:2], [KERNELS[1], KERNELS[0], KERNELS[2]]], ids=["count", "kind"])
def test_a_capture_that_does_not_fit_is_not_used(kernels):
    made = Handmade()
    capture(made, 0, CALLS)
    replay(made, 200, 1, kernels)
    analysis = analyze(made.trace())
    assert codes(analysis)["graph-not-mapped"] == len(kernels)


def test_a_capture_after_the_replay_is_not_that_of_its_graph():
    made = Handmade()
    replay(made, 0, 1, KERNELS)
    capture(made, 200, CALLS)
    assert codes(analyze(made.trace()))["graph-not-mapped"] == 3


def test_generated_kernels_have_the_names_of_their_ops():
    made = Handmade()
    capture(made, 0, CALLS)
    made.host("op", "triton_poi_fused_add_0", 31, 2.5)
    replay(made, 200, 1, KERNELS)
    assert codes(analyze(made.trace()))["graph-not-mapped"] == 3


def test_captures_that_differ_are_told_apart_by_the_ids_of_their_graphs_only():
    def made(**values):
        trace = Handmade()
        capture(trace, 0, [("a", "cudaLaunchKernel", {})])
        capture(trace, 200, [("b", "cudaLaunchKernel", {})])
        for i, graph in enumerate([7, 5]):
            replay(trace, 400 + 100 * i, i + 1, [("k", "kernel")], **dict.fromkeys(values, graph))
        return trace.trace()

    trace = made(graph=True)
    assert ops(trace, analyze(trace)) == ["aten::b", "aten::a"]
    trace = made()
    assert ops(trace, analyze(trace)) == [None, None]


def test_work_of_an_unmapped_graph_is_in_the_layer_around_its_launch():
    made = Handmade().host("range", "module: model (Net)", 190, 50)
    made.host("op", "aten::x", 0, 5)
    replay(made, 200, 1, KERNELS)
    made.launched("k", 300, 400, 24)
    analysis = analyze(made.trace())
    assert layers(analysis) == ["model"] * 3 + [None]
    row = analysis.problems.set_index("code").loc["graph-not-mapped"]
    assert row["count"] == 3 and "50.0% of the busy time" in row["message"] and "launch-without-op" in codes(analysis)
    assert codes(analysis)["launch-without-op"] == 1


def test_a_captured_net_of_torch_2_11_on_an_h200():
    """Linear, GELU, LayerNorm, Linear, captured once and replayed three times; ten nodes, of which two are memsets."""
    trace = load(SAMPLE)
    analysis = analyze(trace)
    work = analysis.work[analysis.work["graph"] >= 0]
    assert len(work) == 30 and set(work["graph"]) == {1}
    names = trace.host["name"].astype(object).to_numpy()
    linear = ["aten::addmm"] * 4
    assert names[work["op"]].tolist() == [*linear, "aten::gelu", "aten::native_layer_norm", *linear] * 3
    paths = analysis.layers["path"].to_numpy()[work["layer"]].tolist()
    assert paths == [f"OptimizedModule.{i}" for i in [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]] * 3
    assert "graph-not-mapped" not in codes(analysis)
    eager = analysis.work[(analysis.work["graph"] < 0) & (analysis.work["family"] == "gemm")]
    by_op = eager.groupby("op")["flops"].sum()
    replayed = work[work["family"] == "gemm"].groupby(["launch", "op"])["flops"].sum()
    assert len(replayed) == 6 and np.allclose(replayed, by_op.max())


def test_captured_ops_and_layers_of_replayed_steps_keep_the_calls_of_their_capture():
    made = Handmade()
    capture(made, 0, CALLS)
    for i in (2, 3):
        made.host("range", step(i - 2), 100 * i, 90)
        replay(made, 100 * i, i, KERNELS)
    analysis = analyze(made.trace())
    assert analysis.ops[["calls", "kernels"]].to_numpy().tolist() == [[1, 2]] * 3
    assert analysis.layers[["calls", "kernels"]].to_numpy().tolist() == [[1, 2]] * 3
