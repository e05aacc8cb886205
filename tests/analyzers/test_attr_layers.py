"""The sources of layers, the layer tree, and the layer of each work item."""

import pytest
from handmade import Handmade
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.intervals import union_ns
from tracekit.analyzers.trace.ranges import module, phase

ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


def self_times(analysis):
    return {row.path: row.self_busy_ns for row in analysis.layers.itertuples()}


def gpt():
    made = Handmade().host("range", module("", "Net"), 0, 100)
    made.host("range", module("h.0", "Block"), 10, 30).host("range", module("h.0.attn", "Attention"), 12, 10)
    return made.host("range", module("h.1", "Block"), 50, 30).host("range", module("h.1.attn", "Attention"), 52, 10)


def test_tree_of_tracekit_ranges():
    made = gpt().launched("a", 15, 200, 8).launched("b", 30, 210, 4).launched("c", 55, 220, 2)
    analysis = analyze(made.launched("d", 95, 230, 1).launched("e", 150, 240, 16).trace())
    layers = analysis.layers
    assert layers.path.tolist() == ["(model)", "h.0", "h.0.attn", "h.1", "h.1.attn", "(no layer)"]
    assert layers.type.tolist() == ["Net", "Block", "Attention", "Block", "Attention", ""]
    assert layers.parent.tolist() == [-1, 0, 1, 0, 3, -1]
    assert layers.depth.tolist() == [0, 1, 2, 1, 2, 0]
    assert layers.self_busy_ns.tolist() == [1_000, 4_000, 8_000, 0, 2_000, 16_000]
    assert layers.busy_ns.tolist() == [15_000, 12_000, 8_000, 2_000, 2_000, 16_000]
    assert layers.kernels.tolist() == [4, 2, 1, 1, 1, 1]
    assert layers.calls.tolist() == [1, 1, 1, 1, 1, 0]
    assert layers.cpu_ns.tolist() == [100_000, 30_000, 10_000, 30_000, 10_000, 0]
    assert analysis.work.layer.tolist() == [2, 1, 4, 0, -1]
    assert analysis.coverage.layer == pytest.approx(15 / 31)
    types = analysis.layer_types.set_index("type")
    assert types.layers.to_dict() == {"Net": 1, "Block": 2, "Attention": 2}
    assert types.busy_ns.to_dict() == {"Net": 15_000, "Block": 14_000, "Attention": 10_000}
    assert types.self_busy_ns.to_dict() == {"Net": 1_000, "Block": 4_000, "Attention": 10_000}


def test_a_class_inside_itself_is_counted_once():
    made = Handmade().host("range", module("a", "Sequential"), 0, 50).host("range", module("a.b", "Sequential"), 10, 20)
    types = analyze(made.launched("k", 15, 60, 8).launched("l", 40, 70, 2).trace()).layer_types
    assert types[["layers", "busy_ns", "self_busy_ns"]].values.tolist() == [[2, 10_000, 10_000]]
    assert types.share.tolist() == [1.0]


def test_layers_are_summed_over_calls_and_steps():
    made = Handmade()
    for i in range(3):
        made.host("range", module("h", "Block"), 100 * i, 50).launched("k", 100 * i + 1, 100 * i + 20, 5 + i)
    layers = analyze(made.trace()).layers
    assert layers[["path", "calls", "self_busy_ns"]].values.tolist() == [["h", 3, 18_000]]


def test_module_events_make_paths_of_their_nesting():
    made = Handmade().host("module", "nn.Module: Net_0", 0, 100)
    for i in range(2):
        made.host("module", f"nn.Module: Block_{i}", 10 + 40 * i, 30).host(
            "module", f"nn.Module: Linear_{i}", 15 + 40 * i, 9
        )
        made.launched(f"k{i}", 16 + 40 * i, 200 + 10 * i, 5)
    analysis = analyze(made.trace())
    assert analysis.source.layers_from == "nn.Module events"
    assert analysis.layers.path.tolist() == [
        "Net_0",
        "Net_0.Block_0",
        "Net_0.Block_0.Linear_0",
        "Net_0.Block_1",
        "Net_0.Block_1.Linear_1",
    ]
    assert analysis.layers.type.tolist() == ["Net", "Block", "Linear", "Block", "Linear"]
    assert analysis.layers.self_busy_ns.tolist() == [0, 0, 5_000, 0, 5_000]


def test_user_ranges_are_layers_but_bookkeeping_is_not():
    made = Handmade().host("range", "ProfilerStep#3", 0, 200).host("range", "## encoder ##", 10, 90)
    made.host("range", "attention", 20, 30).host("range", "nccl:all_reduce", 22, 10)
    made.host("range", "Optimizer.step#SGD.step", 120, 30)
    made.launched("k", 25, 60, 8).launched("o", 130, 140, 3)
    analysis = analyze(made.trace())
    assert analysis.source.layers_from == "record_function ranges"
    assert self_times(analysis) == {"## encoder ##": 0, "## encoder ##/attention": 8_000, "(optimizer)": 3_000}


def test_a_trace_without_layers_says_how_to_get_them():
    analysis = analyze(Handmade().host("range", "step_0", 0, 50).launched("k", 1, 10, 5).trace())
    assert analysis.source.layers_from == "none"
    assert self_times(analysis) == {"(no layer)": 5_000}
    problem = analysis.problems[analysis.problems["code"] == "no-layers"].iloc[0]
    assert "with_stack" in problem.advice


def backward(forward_sequence=7):
    made = gpt().host("op", "aten::empty", 12, 1, sequence=7).host("op", "aten::addmm", 14, 4, sequence=7)
    made.host("op", "aten::gelu", 53, 4, sequence=8)
    made.host("op", ENGINE, 300, 50, thread=1, sequence=forward_sequence, forward_thread=1)
    made.host("op", "AddmmBackward0", 305, 40, thread=1, sequence=forward_sequence, forward_thread=1)
    return made.host("op", "aten::mm", 310, 20, thread=1)


def test_backward_work_belongs_to_the_layer_of_its_forward_op():
    made = backward().host("runtime", "cudaLaunchKernel", 312, 1, thread=1, correlation=50)
    assert self_times(analyze(made.device("k", 320, 6, correlation=50).trace()))["h.0.attn"] == 6_000


def test_backward_work_of_an_unknown_forward_op_has_no_layer():
    made = backward(99).host("runtime", "cudaLaunchKernel", 312, 1, thread=1, correlation=50)
    assert self_times(analyze(made.device("k", 320, 6, correlation=50).trace()))["(no layer)"] == 6_000


def test_backward_on_the_calling_thread_is_not_the_layer_around_it():
    made = gpt().host("op", "aten::addmm", 14, 4, sequence=7)
    made.host("range", module("loss", "Loss"), 290, 100).host("op", ENGINE, 300, 50, sequence=7, forward_thread=1)
    assert self_times(analyze(made.launched("k", 310, 320, 6).trace()))["h.0.attn"] == 6_000


def test_a_checkpoint_runs_the_forward_again_in_the_backward():
    made = gpt().host("op", "CheckpointFunction", 14, 4, sequence=7)
    made.host("op", ENGINE, 300, 80, thread=1, sequence=7, forward_thread=1)
    made.host("range", module("h.1.attn", "Attention"), 305, 20, thread=1)
    made.host("op", "aten::addmm", 306, 10, thread=1, sequence=30)
    made.host("op", ENGINE, 340, 20, thread=1, sequence=30, forward_thread=2)
    for correlation, at in ((50, 308), (51, 345)):
        made.host("runtime", "cudaLaunchKernel", at, 1, thread=1, correlation=correlation)
    made.device("again", 400, 2, correlation=50).device("its backward", 410, 4, correlation=51)
    assert self_times(analyze(made.trace()))["h.1.attn"] == 6_000


def test_optimizer_work_is_a_root_of_its_own():
    made = gpt().host("range", phase("optimizer"), 300, 50).host("op", "aten::_foreach_add_", 310, 5)
    analysis = analyze(made.launched("k", 312, 320, 6).launched("n", 400, 410, 1).trace())
    assert self_times(analysis)["(optimizer)"] == 6_000
    assert self_times(analysis)["(no layer)"] == 1_000
    assert analysis.layers.calls.tolist()[-2:] == [0, 0]


WORK = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 120), st.integers(0, 40)), min_size=1, max_size=30)


@given(WORK)
def test_own_times_of_layers_sum_to_the_union_of_the_work(work):
    made = gpt()
    for at, start, duration in work:
        made.launched("k", at + 0.5, start, duration)
    trace = made.trace()
    analysis = analyze(trace)
    start = trace.device["start_ns"].to_numpy()
    union = union_ns(start, start + trace.device["duration_ns"].to_numpy(), trace.device["device"].to_numpy())
    assert analysis.timeline.busy_ns == analysis.work.busy_ns.sum() == union
    assert analysis.layers.self_busy_ns.sum() == union
    assert analysis.layers[analysis.layers.parent < 0].busy_ns.sum() == union
    assert analysis.kernels.busy_ns.sum() == analysis.ops.busy_ns.sum() == union
