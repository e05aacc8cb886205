"""Optimizations that a run has already are not recommended; fallbacks and odd shapes in its trace are pointed out."""

import json

import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base, product

import tracekit
from tracekit.advise import advise, find
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict.math_fallback import MathFallback, math_fallback
from tracekit.analyzers.predict.running import Running, running

GRAPHED = Running(graph_launches=1, graphed=0.99)
MATH = "aten::_scaled_dot_product_attention_math"
HALF, BF16 = "c10::Half", "c10::BFloat16"


def _work(names: list[str], graph: list[int]) -> pd.DataFrame:
    size = len(names)
    columns = {"name": names, "graph": graph, "launch": [0] * size, "op_name": [""] * size, "duration_ns": [10] * size}
    return pd.DataFrame(columns)


def test_what_runs_is_read_from_the_work() -> None:
    known = running(_work(["triton_poi_fused_add_0", "gemm", "gemm"], [7, 7, -1]), 1, measured=True)
    assert (known.graph_launches, round(known.graphed, 2), known.compiled) == (1, 0.67, True)
    names = ["cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1", "sm80_xmma_gemm_align8"]
    assert running(_work(names, [-1, -1]), 1, measured=True).unaligned == 0.5
    assert running(_work(names, [-1, -1]), 1, measured=False).unaligned is None


def test_a_graph_is_not_advised_to_what_replays_one() -> None:
    graphed = replace(base("h200"), running=GRAPHED)
    for name in ("cuda-graphs", "max-autotune"):
        assert find(name).objection(base("h200")) is None
        assert "are already replayed by 1 graph launch" in str(find(name).objection(graphed))
    assert find("compile").objection(replace(graphed, running=Running(compiled=True))) == "The run is already compiled."


def test_training_gets_autocast_and_no_formats_of_weights() -> None:
    run = base("a100", tokens=4096, precision="fp32")
    training = replace(run, ops=run.ops.assign(phase="backward"))
    assert training.trains and not run.trains
    assert find("mixed-precision").objection(run) is not None
    advice = advise(training)
    recommended = [each.id for each in advice.recommendations]
    assert "mixed-precision" in recommended and "half-precision" not in recommended
    assert "half-precision" not in [step.name for step in advice.plan]
    for name in ("nf4", "llm-int8", "int8-weight-only", "int8-dynamic"):
        assert find(name).objection(training) is not None


def _host(shapes: object, dtypes: list[str], strides: object = ()) -> pd.DataFrame:
    row = {"name": MATH, "shapes": json.dumps(shapes), "dtypes": json.dumps(dtypes), "strides": json.dumps(strides)}
    return pd.DataFrame([row])


def _qkv(heads: int = 8, kv_heads: int = 8, dim: int = 64) -> list[list[int]]:
    return [[1, heads, 128, dim], [1, kv_heads, 128, dim], [1, kv_heads, 128, dim]]


@pytest.mark.parametrize(
    ("gpu", "host", "cause"),
    [
        ("t4", _host(_qkv(), [BF16] * 3), "bf16"),
        ("t4", _host(_qkv(32, 8), [HALF] * 3), "grouped-heads"),
        ("a100", _host([*_qkv(32, 8), [1, 1, 128, 128]], [HALF] * 4), "grouped-heads"),
        ("a100", _host(_qkv(), [HALF, "float", HALF]), "mixed-types"),
        ("a100", _host(_qkv(dim=60), [HALF] * 3), "head-dim"),
        ("a100", _host([*_qkv(), [1, 1, 128, 127]], [HALF] * 4), "mask"),
        ("a100", _host(_qkv(), [HALF] * 3, [[1, 1, 64, 128]] * 3), "layout"),
        ("a100", _host(_qkv(), [HALF] * 3), "unknown"),
        ("a100", _host("?", []), "unknown"),
    ],
)
def test_the_cause_of_a_fallback_is_read_from_the_call(gpu: str, host: pd.DataFrame, cause: str) -> None:
    known = math_fallback(host, hardware.find(gpu), None)
    assert known is not None and known.cause == cause
    run = replace(base(gpu, precision="fp16", tokens=512), fallback=known)
    assert find("fused-attention-fallback").how_to(run)


@pytest.mark.parametrize(
    ("gpu", "masked", "fixed"), [("h100", False, True), ("h100", True, False), ("t4", False, False)]
)
def test_grouped_heads_that_fall_back_in_32_bits_alone(gpu: str, masked: bool, fixed: bool) -> None:
    shapes = [*_qkv(32, 8), *[[1, 1, 128, 128]] * masked]
    known = math_fallback(_host(shapes, ["float"] * len(shapes)), hardware.find(gpu), None)
    assert known is not None and (known.cause, known.fixed_by_half) == ("grouped-heads", fixed)
    run = replace(base(gpu, precision="fp32", tokens=512, keys=512), fallback=known)
    halved = find("half-precision").transform(run, "expected")
    assert (halved.name == "aten::scaled_dot_product_attention").any() == fixed


def test_no_fallback_without_the_math_path() -> None:
    host = pd.DataFrame([{"name": "aten::mm", "shapes": "", "dtypes": "", "strides": ""}])
    assert math_fallback(host, hardware.find("t4"), None) is None


def test_a_fallback_is_advised_in_place_of_sdpa() -> None:
    run = replace(
        base("t4", tokens=4096, keys=4096, width=1024, heads=16, precision="fp16"),
        fallback=MathFallback("grouped-heads", 4),
    )
    assert "fused-attention-fallback" in str(find("sdpa").objection(run))
    advice = advise(run)
    first = next(each for each in advice.recommendations if each.id == "fused-attention-fallback")
    assert first.speedup.low > 1.03
    assert first.reason[0].kind == "attention-fell-back"
    assert find("fused-attention-fallback").objection(base("t4", precision="fp16")) is not None


def test_an_odd_vocabulary_is_padded() -> None:
    run = base("a100", tokens=4096, layers=1)
    head = product(4096, 50257, 4096, "bf16")
    ops = run.ops.assign(cost=[head, *run.ops.cost[1:]])
    odd = replace(run, ops=ops)
    pad = find("pad-shapes")
    assert pad.objection(run) is not None and pad.objection(odd) is None
    assert "50264" in pad.how_to(odd)
    assert pad.expected_speedup(odd) > 1
    assert pad.objection(replace(odd, running=Running(unaligned=0.0))) is not None
    assert pad.objection(replace(odd, running=Running(unaligned=0.4))) is None


def test_host_work_beside_launching_grows_with_the_batch() -> None:
    run = base("a100", batch_size=4)
    loading = run.ops.host_ns.copy()
    loading[0] += 1e9
    waiting = replace(run, ops=run.ops.assign(host_ns=loading))
    assert find("batching").expected_speedup(waiting) < 1.1 < find("batching").expected_speedup(run)


def test_a_graphed_decode_is_told_nothing_that_it_does(shared) -> None:
    analysis = tracekit.analyze(shared / "advice" / "gpt2_bf16-sdpa-graphs_decode_b1_c512.json.gz")
    never = {"cuda-graphs", "compile", "max-autotune", "fused-optimizer"}
    assert never.isdisjoint(each.id for each in analysis.recommendations)
    assert never.isdisjoint(step.name for step in analysis.plan)


def test_unaligned_products_of_a_detector(shared) -> None:
    analysis = tracekit.analyze(shared / "advice" / "h100_owlv2.json.gz")
    padded = next(each for each in analysis.considered if each.id == "pad-shapes")
    assert padded.recommended
    (share, *_) = padded.reason[0].evidence
    assert 0.3 < share.value < 0.6


def test_an_objection_about_shapes_is_no_answer_where_none_are_recorded() -> None:
    run = base("a100")
    unknown = replace(run, ops=run.ops.assign(cost=None))
    for name in ("half-precision", "tf32", "nf4", "int8-dynamic", "pad-shapes"):
        assert find(name).obstacle(unknown) == "The trace does not record shapes and types of most of its work."
    assert "16 bits" in str(find("tf32").obstacle(run)) or "fp32" in str(find("tf32").obstacle(run))


def test_operands_in_another_layout_are_copied_first() -> None:
    run = base("h200", tokens=2048, precision="fp16")
    times = []
    for strided in (1, 3):
        fallen = replace(run, fallback=MathFallback("layout", precision="fp16", strided=strided))
        ops = find("fused-attention-fallback").transform(fallen, "expected")
        times.append((int((ops.name == "aten::copy_").sum()), ops.kernel_ns.sum()))
    assert times[0] < times[1]
