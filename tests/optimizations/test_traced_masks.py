"""Masks that transformers builds while a step is compiled or recorded."""

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import advise, find, predicted_speedup
from tracekit.advise.optimizations.cuda_graphs import KEPT_GUARDS, REPLAY_NS, guards_ns
from tracekit.analyzers.cost import Attention, Cost, estimate_ns
from tracekit.analyzers.predict import changed
from tracekit.analyzers.predict.transforms.math_attention import with_a_mask
from tracekit.reports.words import why

BATCH, HEADS, LENGTH, HEAD = 8, 16, 197, 64
RUN = {"tokens": BATCH * LENGTH, "width": HEADS * HEAD, "precision": "fp16", "batch_size": BATCH}


def attention(*, causal=False, kv_heads=HEADS, precision="fp16"):
    elements = BATCH * LENGTH * HEAD
    shape = Attention(BATCH, HEADS, kv_heads, LENGTH, LENGTH, HEAD, causal, "cudnn")
    read = 2 * elements * (HEADS + 2 * kv_heads)
    return Cost(4 * LENGTH * HEADS * elements, read, 2 * HEADS * elements, "attention", precision, work=shape)


def with_attention(cost, version="5.17.0", layer_type="BertSelfAttention"):
    """Return layers with fused attention."""
    baseline = base(**RUN, attention_type=layer_type, versions={"transformers": version} if version else {})
    costs = [cost if each.family == "softmax" else each for each in baseline.ops.cost]
    ops = baseline.ops.assign(cost=costs, kernel_ns=[estimate_ns(each, baseline.gpu) for each in costs])
    ops = ops[~np.isin(ops.name, ("aten::bmm", "aten::div"))].renumbered()
    changed = replace(baseline, ops=ops)
    return replace(changed, stated_ns=changed.latency_ns)


def test_the_math_backend_widens_everything():
    costs = with_a_mask(attention())
    scores, queries = BATCH * HEADS * LENGTH**2, BATCH * HEADS * LENGTH * HEAD
    products = [cost for cost in costs if cost.family == "gemm"]
    assert [cost.flops for cost in products] == [2 * scores * HEAD] * 2
    assert {cost.precision for cost in products} == {"fp32"}
    assert len(costs) == 19
    assert [cost.write_bytes for cost in costs[1:4]] == [4 * queries] * 3
    assert sum(cost.write_bytes >= 4 * scores for cost in costs) == 4  # product, mask added, softmax, rows set to zero


def test_it_takes_what_was_measured():
    """ViT-large on an H200, batch 8: 487 launches more in a graph, of 4,500 us, in 24 layers."""
    baseline = with_attention(attention())
    after = find("cuda-graphs").transform(baseline, "expected")
    layers = int((baseline.ops.cost == attention()).sum())
    assert (after.launches.sum() - baseline.ops.launches.sum()) / layers == pytest.approx(487 / 24, abs=2.5)
    rest = baseline.ops.kernel_ns[baseline.ops.cost != attention()].sum()
    assert (after.kernel_ns.sum() - rest) / layers == pytest.approx(4_500e3 / 24, rel=0.1)


@pytest.mark.parametrize("version", ["4.57.6", "5.18.0", "5.23.0", ""])
def test_other_versions_stay_fused(version):
    baseline = with_attention(attention(), version)
    assert attention() in find("cuda-graphs").transform(baseline, "expected").cost
    assert find("cuda-graphs").notes(baseline) == ()


def test_models_of_images_have_masks_since_5_9():
    assert find("compile").notes(with_attention(attention(), "5.5.0"))
    assert not find("compile").notes(with_attention(attention(), "5.5.0", "ViTAttention"))
    assert find("compile").notes(with_attention(attention(), "5.9.0", "ViTAttention"))


@pytest.mark.parametrize("layer_type", ["SwinAttention", "Dinov2SelfAttention", "AttentionOfMyOwn", ""])
def test_models_that_build_their_own_masks_or_none_stay_fused(layer_type):
    baseline = with_attention(attention(), layer_type=layer_type)
    assert attention() in find("cuda-graphs").transform(baseline, "expected").cost


def test_the_loss_is_rejected_with_the_version_that_fixes_it():
    baseline = with_attention(attention())
    by_id = {option.id: option for option in advise(baseline).considered}
    graphs = by_id["cuda-graphs"]
    assert graphs.speedup.expected < 0.8 and not graphs.recommended
    fixed = predicted_speedup(find("cuda-graphs"), with_attention(attention(), "5.18.0")).expected
    assert f"from 5.18 on it does not: {fixed:.2f} times then" in why(graphs)
    assert fixed > 1


def test_a_decoder_stays_fused_without_its_causal_half_and_grouped_heads():
    grouped = attention(causal=True, kv_heads=4)
    after = find("cuda-graphs").transform(with_attention(grouped), "expected")
    fused = next(cost for cost in after.cost if cost.family == "attention")
    assert not fused.work.causal and fused.work.kv_heads == HEADS
    layers = int((with_attention(grouped).ops.cost == grouped).sum())
    assert (after.name == "repeat_kv").sum() == 2 * layers
    assert find("cuda-graphs").notes(with_attention(grouped)) == ()


def test_a_mask_that_only_recording_makes_comes_from_the_host():
    versions = {"transformers": "5.17.0"}
    options = {**RUN, "keys": RUN["tokens"], "attention_type": "BertSelfAttention", "versions": versions}
    eager = base(**options, attention="eager")
    assert "number on the host" in find("cuda-graphs").objection(eager)
    assert find("cuda-graphs").objection(base(**options, attention="sdpa")) is None
    assert find("cuda-graphs").objection(find("compile").applied(eager, "expected")) is None


def reading_back(*before):
    """Return a run that waits for a copy of one number after calls of these names, inside another op."""
    baseline = base(tokens=1, layers=4)
    names, number = baseline.ops.name.tolist(), Cost(0, 4, 4, "copy", "fp32")
    waits = len(before)
    names[: waits + 1] = [*["aten::copy_"] * waits, "aten::_local_scalar_dense"]
    calls = [*before, "aten::is_nonzero", *names[waits + 1 :]]
    waiting = baseline.ops.index == waits
    ops = baseline.ops.assign(name=names, call=calls, category=np.where(waiting, "memcpy", "kernel"), sync=waiting)
    return replace(baseline, ops=ops.assign(cost=[*[ops.cost[0]] * waits, number, *ops.cost[waits + 1 :]]))


def test_a_question_about_padding_is_not_asked_while_recording():
    assert find("cuda-graphs").objection(reading_back("aten::all")) is None
    assert find("cuda-graphs").objection(reading_back("aten::sum", "aten::eq")) is None
    assert "waits for a copy" in find("cuda-graphs").objection(reading_back("aten::argmax"))
    assert "waits for a copy" in find("cuda-graphs").objection(reading_back("aten::argmax", "aten::eq"))


def test_compiled_code_asks_for_no_padding():
    for asks in (("aten::all",), ("aten::sum", "aten::eq"), ("aten::eq", "aten::any")):
        run = reading_back(*asks)
        assert find("compile").transform(run, "expected").sync.sum() == 0
    assert find("compile").transform(reading_back("aten::any"), "expected").sync.sum() == 1


def copying(name, versions=None):
    """Return a run that waits for a copy of this name between its kernels."""
    run = reading_back("aten::argmax")
    cost = replace(run.ops.cost[1], write_bytes=4096)
    ops = run.ops.assign(name=changed(run.ops.name, run.ops.index == 1, "aten::copy_"), call="aten::to")
    ops = ops.assign(cost=[cost if row == 1 else each for row, each in enumerate(ops.cost)])
    capture = msgspec.structs.replace(run.source.capture, versions=versions or {})
    recorded = replace(run.recorded, copies=np.array(["", name], dtype=object))
    return replace(run, ops=ops, recorded=recorded, source=replace(run.source, capture=capture))


def test_compiled_code_divides_a_graph_around_copies_to_the_device():
    graphs, compiles = find("cuda-graphs"), find("compile")
    run = copying("Memcpy HtoD (Pageable -> Device)")
    assert "waits for a copy" in graphs.objection(run)
    compiled = compiles.applied(run, "expected")
    assert graphs.objection(compiled) is None
    parts = graphs.transform(compiled, "expected")
    assert parts.sync.sum() == 1
    guards = KEPT_GUARDS.expected * guards_ns(compiled, "expected")
    assert parts.host_ns[0] == pytest.approx(2 * REPLAY_NS.expected + guards + compiled.other_host_ns)
    back = compiles.applied(copying("Memcpy DtoH (Device -> Pageable)"), "expected")
    assert "waits for a copy" in graphs.objection(back)


def test_a_graph_of_an_old_pytorch_is_not_divided():
    run = copying("Memcpy HtoD (Pageable -> Device)", {"torch": "2.8.0"})
    assert "waits for a copy" in find("cuda-graphs").objection(find("compile").applied(run, "expected"))


def test_compiled_code_holds_the_numbers_of_the_host():
    run = reading_back("aten::argmax")
    copies = changed(run.ops.name, run.ops.name == "aten::_local_scalar_dense", "aten::copy_")
    copied = replace(run, ops=run.ops.assign(name=copies))
    assert find("compile").transform(run, "expected").sync.sum() == 1
    assert find("compile").transform(copied, "expected").sync.sum() == 0


def test_a_model_with_masks_of_its_own_has_none_of_the_library():
    options = {**RUN, "attention": "eager", "versions": {"transformers": "5.17.0"}}
    assert "mask" in str(find("cuda-graphs").objection(base(**options, attention_type="BertSelfAttention")))
    assert find("cuda-graphs").objection(base(**options, attention_type="SwinAttention")) is None
