"""Optimizations of training: gradient checkpointing, and the fused optimizer."""

import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import advise, find, predicted_speedup
from tracekit.advise.optimizations.gradient_checkpointing import HOOKS, WRAPPING
from tracekit.advise.optimizations.mixed_precision import _FURTHER
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import changed, plain_launch_ns
from tracekit.analyzers.predict.op_columns import op_list
from tracekit.analyzers.results import Memory

MB = 1_000_000
PARAMETERS = 100 * MB
"""Bytes."""


def step():
    """Return a step: two blocks of 1 ms forward and 2 ms backward, a head, and three passes of an optimizer."""
    foreach = Cost(PARAMETERS // 4, 2 * PARAMETERS, PARAMETERS, "optimizer", "fp32")
    op = Cost(0, 10 * MB, 10 * MB, "pointwise", "fp32")
    rows = [
        ("forward", "model.h.0.mlp", "aten::mul", 1e6, op),
        ("forward", "model.h.1.mlp", "aten::mul", 1e6, op),
        ("forward", "lm_head", "aten::mul", 1e6, replace(op, write_bytes=5 * MB)),
        ("backward", "model.h.1.mlp", "aten::mul", 2e6, op),
        ("backward", "model.h.0.mlp", "aten::mul", 2e6, op),
        *[("optimizer", "", f"aten::_foreach_{name}_", 3e5, foreach) for name in ("mul", "add", "addcdiv")],
    ]
    baseline = base(workload="train")
    phase, layer, name, kernel, cost = (list(column) for column in zip(*rows, strict=True))
    rest = {"layer_type": ["MLP"] * 8, "category": ["kernel"] * 8, "host_ns": [1_000.0] * 8, "launches": [4] * 8}
    rest |= {"message": [None] * 8}
    frame = op_list(
        phase=phase,
        layer=layer,
        name=name,
        call=name,
        kernel_ns=kernel,
        cost=cost,
        sync=[False] * 8,
        **rest,
    )
    return replace(baseline, ops=frame)


def test_autocast_launches_casts_of_weights_and_of_what_stands_beside_them():
    run = base(layers=1, precision="fp32", workload="train")
    weights = [cost for cost in run.ops.cost if cost and cost.weight_bytes]
    after = find("mixed-precision").transform(run, "expected")
    casts = after[after.name == "aten::_to_copy"]
    assert sorted(cost.read_bytes for cost in casts.cost)[-len(weights) :] == sorted(c.weight_bytes for c in weights)
    assert casts.host_ns.sum() == pytest.approx((1 + _FURTHER.expected) * len(weights) * plain_launch_ns(run))
    at_worst = find("mixed-precision").transform(run, "worst")
    assert at_worst[at_worst.name == "aten::_to_copy"].kernel_ns.sum() > casts.kernel_ns.sum()


def test_blocks_run_again_before_their_gradients():
    after = find("gradient-checkpointing").transform(step(), "expected")
    assert list(after.layer[3:5]) == ["model.h.0.mlp", "model.h.1.mlp"]
    assert (after.phase[3:5] == "backward").all()
    assert after.kernel_ns.sum() == step().ops.kernel_ns.sum() + 2e6
    assert after.host_ns.sum() == pytest.approx(
        step().ops.host_ns.sum() + 2 * 1_000 + 2 * WRAPPING.expected * plain_launch_ns(step())
    )


def test_every_saved_tensor_of_a_block_passes_through_python():
    run = step()
    saving = replace(run, ops=run.ops.assign(name=changed(run.ops.name, run.ops.name == "aten::mul", "aten::gelu")))
    added = [find("gradient-checkpointing").transform(each, "expected").host_ns.sum() for each in (run, saving)]
    assert added[1] - added[0] == pytest.approx(2 * HOOKS.expected * plain_launch_ns(run))


def test_checkpointing_loses_a_third_of_forward_and_backward_and_keeps_inputs():
    ops = step().ops
    run = replace(step(), ops=ops[ops.phase != "optimizer"])
    assert predicted_speedup(find("gradient-checkpointing"), run).expected == pytest.approx(7 / 9, rel=0.01)


def with_activations(times):
    """Return the step with `times` ops per block that save their inputs."""
    ops = step().ops
    ops = ops.assign(name=changed(ops.name, ops.name == "aten::mul", "aten::gelu"))
    return replace(step(), ops=ops[np.repeat(ops.index, [times, times, 1, 1, 1, 1, 1, 1])].renumbered())


def test_checkpointing_frees_what_many_ops_of_a_block_keep():
    # Ten ops keep 10 MB each, the head 5. Kept are the head's and two blocks' inputs; while the last block runs again,
    # its other four are there, and the head's is not.
    before = Memory(activations=105, loss=20)
    after = find("gradient-checkpointing").memory(with_activations(5), before)
    assert after == Memory(activations=5 + 20, loss=40 - 5)


def test_checkpointing_blocks_of_one_op_frees_nothing():
    before = Memory(weights=3, activations=25, loss=20)
    assert find("gradient-checkpointing").memory(with_activations(1), before) == before


def test_one_pass_moves_each_parameter_gradient_and_moment_once():
    optimizer = find("fused-optimizer")
    after = optimizer.transform(step(), "expected")
    (row,) = after[after.phase == "optimizer"].frame().itertuples()
    assert (row.cost.read_bytes, row.cost.write_bytes) == (4 * PARAMETERS, 3 * PARAMETERS)
    assert (row.name, row.launches) == ("aten::_fused_adamw_", 4)
    assert row.host_ns == pytest.approx(0.6 * 3_000)
    assert 9e5 * 7 / 9 * 0.95 < row.kernel_ns < 9e5 * 7 / 9 * 1.05
    again = replace(step(), ops=after)
    assert "already" in optimizer.objection(again)


def test_they_are_for_training():
    for name in ("gradient-checkpointing", "fused-optimizer"):
        assert find(name).objection(base())
    assert find("gradient-checkpointing").objection(step()) is None


def test_checkpointing_is_recommended_where_memory_is_short_though_it_loses():
    checkpointing, run = find("gradient-checkpointing"), step()
    gpu = run.gpu.memory_bytes
    short = replace(run, predicted_memory=Memory(weights=gpu // 10, activations=gpu * 8 // 10))
    assert checkpointing.needed(short)
    judged = {each.id: each for each in advise(short).considered}
    assert judged["gradient-checkpointing"].recommended and judged["gradient-checkpointing"].speedup.expected < 1
    roomy = replace(run, predicted_memory=Memory(weights=gpu // 10, activations=gpu // 2))
    of_weights = replace(run, predicted_memory=Memory(weights=gpu * 6 // 10, activations=gpu * 3 // 10))
    assert not checkpointing.needed(roomy) and not checkpointing.needed(of_weights)
    assert all("checkpointing" not in str(planned) for planned in advise(short).plan)


def test_passes_of_an_optimizer_without_shapes_count_as_three_copies_each():
    run = step()
    unsized = replace(run, ops=run.ops.assign(cost=None))
    optimizer = find("fused-optimizer")
    assert optimizer.objection(unsized) is None
    after = optimizer.applied(unsized, "expected").ops
    assert after.kernel_ns.sum() - 7e6 == pytest.approx(9e5 * 7 / 9)
    assert [each.kind for each in optimizer.reason(unsized)] == ["fused-optimizer-unsized"]
    named = np.where(run.ops.phase == "optimizer", "aten::addcmul_", run.ops.name)
    by_parameter = replace(unsized, ops=unsized.ops.assign(name=named))
    assert optimizer.objection(by_parameter) is None
    assert optimizer.objection(replace(unsized, ops=unsized.ops.assign(name="aten::mm")))
