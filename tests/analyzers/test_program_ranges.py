"""Ranges that a program records are layers beside its modules, and layers are taken apart."""

import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.trace.ranges import module

ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


def net():
    """A model with two blocks, whose attention records two ranges; the second calls a module."""
    made = Handmade().host("range", module("", "Net"), 0, 100)
    for index in range(2):
        at = 10 + 40 * index
        made.host("range", module(f"h.{index}.attn", "Attention"), at, 30)
        made.host("range", "scores", at + 1, 10).host("range", "output", at + 15, 10)
        made.host("range", module(f"h.{index}.attn.proj", "Linear"), at + 16, 5)
    return made


def launched(made):
    made.launched("a", 12, 200, 8).launched("b", 27, 210, 4).launched("c", 37, 220, 1)
    return made.launched("a", 52, 230, 8).launched("b", 67, 240, 4)


def own_times(analysis):
    return dict(zip(analysis.layers.path, analysis.layers.self_busy_ns, strict=True))


def test_a_range_in_a_module_is_its_child_and_holds_the_modules_called_in_it():
    layers = analyze(launched(net()).trace()).layers
    assert layers.path.tolist()[:5] == ["(model)", "h.0.attn", "h.0.attn/scores", "h.0.attn/output", "h.0.attn.proj"]
    assert layers.type.tolist()[:5] == ["Net", "Attention", "scores", "output", "Linear"]
    assert layers.parent.tolist()[:5] == [-1, 0, 1, 1, 3]
    assert layers.module.tolist()[:5] == [0, 1, 1, 1, 4]
    assert layers.calls.tolist()[:5] == [1, 1, 1, 1, 1]
    assert layers.busy_ns.tolist()[:5] == [25_000, 13_000, 8_000, 4_000, 4_000]


def test_parts_of_a_class_are_summed_over_its_layers():
    parts = analyze(launched(net()).trace()).layer_parts
    attention = parts[parts.inside == "Attention"].set_index("part")
    assert attention.layers.to_dict() == {"scores": 2, "output": 2, "(own work)": 2}
    assert attention.busy_ns.to_dict() == {"scores": 16_000, "output": 8_000, "(own work)": 1_000}
    assert attention.share_inside.sum() == pytest.approx(1.0)
    assert parts[parts.inside == "Attention/output"].part.tolist() == ["proj"]


def test_layer_ops_hold_all_work_once():
    made = launched(net()).host("op", "aten::mm", 66.5, 2).launched("stray", 150, 260, 3)
    ops = analyze(made.trace()).layer_ops
    assert ops.busy_ns.sum() == 28_000
    assert ops[ops.layer == "h.1.attn.proj"][["op", "busy_ns"]].values.tolist() == [["aten::mm", 4_000]]
    assert ops.layer.tolist()[-1] == "(no layer)"


def test_a_range_around_the_model_is_no_layer():
    made = launched(net()).host("range", "training", -5, 140).host("range", "loss", 120, 10)
    analysis = analyze(made.launched("l", 122, 250, 2).trace())
    assert "training" not in own_times(analysis)
    assert own_times(analysis)["loss"] == 2_000
    assert analysis.layers.module.tolist()[-1] == -1


def test_ranges_of_libraries_are_no_layers():
    made = (
        launched(net()).host("range", "nccl:all_reduce", 11.5, 9).host("range", "Torch-Compiled Region: 0/0", 11.6, 8)
    )
    made.host("range", "Optimizer.step#AdamW.step", 110, 20).host("range", "update", 105, 30)
    times = own_times(analyze(made.launched("o", 112, 300, 7).trace()))
    assert times["h.0.attn/scores"] == 8_000
    assert times["(optimizer)"] == 7_000


def test_backward_work_belongs_to_the_range_of_its_forward_op():
    made = launched(net()).host("op", "aten::addmm", 12, 4, sequence=7)
    made.host("op", ENGINE, 300, 50, thread=1, sequence=7, forward_thread=1)
    made.host("range", "in the backward", 305, 40, thread=1)
    made.host("runtime", "cudaLaunchKernel", 312, 1, thread=1, correlation=50)
    analysis = analyze(made.device("k", 320, 6, correlation=50).trace())
    assert own_times(analysis)["h.0.attn/scores"] == 14_000
    scores = analysis.layer_parts.set_index("part").loc["scores"]
    assert (scores.forward_ns, scores.backward_ns) == (16_000, 6_000)


def test_a_module_called_in_two_ranges_is_a_layer_in_each():
    made = Handmade().host("range", module("attn", "Attention"), 0, 100)
    for at, name in ((10, "weights"), (50, "output")):
        made.host("range", name, at, 30).host("range", module("attn.drop", "Dropout"), at + 5, 10)
        made.host("range", module("attn.drop.mask", "Mask"), at + 6, 2)
    times = own_times(analyze(made.launched("a", 16, 200, 8).launched("b", 56, 210, 4).trace()))
    assert times["attn/weights/drop/mask"] == 8_000
    assert times["attn/output/drop/mask"] == 4_000
