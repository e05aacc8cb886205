"""Formats of weights: the ops that each adds, and the memory that it needs."""

import re

import pytest
from msgspec.structs import replace
from op_lists import base, product

from tracekit.advise import find, parse, predicted_speedup
from tracekit.analyzers.core import InputError
from tracekit.analyzers.predict import (
    LinearProduct,
    inner_products,
    linear_product,
    plain_launch_ns,
    which,
    with_weights,
)
from tracekit.analyzers.results import Memory

PRODUCTS = 4
"""Products with weights in a layer of op_lists; its other two multiply activations."""


def renamed(baseline, **columns):
    return replace(baseline, ops=baseline.ops.assign(**columns))


def kernels(name, baseline, outcome="expected"):
    return find(name).transform(baseline, outcome)


def test_a_product_is_known_by_its_weights_whichever_side_they_are_on():
    assert linear_product(product(3, 5, 7, "bf16")) == LinearProduct(3, 7, 5, 2)
    turned = product(5, 3, 7, "bf16")
    turned = replace(turned, work=replace(turned.work, weight="a"))
    assert linear_product(turned) == LinearProduct(3, 7, 5, 2)
    assert linear_product(product(3, 5, 7, "bf16", weights=False)) is None


def test_the_head_and_conv1d_are_left_out():
    baseline = base(layers=1)
    layers = baseline.ops.layer.tolist()
    layers[-1] = "model.lm_head"
    assert inner_products(renamed(baseline, layer=layers), conv1d=True).sum() == PRODUCTS - 1
    assert inner_products(renamed(baseline, layer_type="Conv1D"), conv1d=False).sum() == 0
    assert inner_products(renamed(baseline, layer_type="Conv1D"), conv1d=True).sum() == PRODUCTS


def test_weights_in_another_format_change_bytes_only():
    before = product(1, 4096, 1024, "bf16")
    after = with_weights(before, 0.5, "int4")
    assert (after.weight_bytes, before.read_bytes - after.read_bytes) == (4096 * 512, 4096 * 1024 * 3 // 2)
    assert (after.flops, after.write_bytes, after.precision) == (before.flops, before.write_bytes, "bf16")


@pytest.mark.parametrize(("outcome", "added", "waits"), [("expected", 16, 2), ("best", 6, 1)])
def test_llm_int8_adds_its_passes_and_waits_to_each_product(outcome, added, waits):
    baseline = base(tokens=1, layers=1)
    after = kernels("llm-int8", baseline, outcome)
    assert len(after) - len(baseline.ops) == PRODUCTS * added
    assert after.sync.sum() == PRODUCTS * waits
    products = [cost for cost in after.cost if cost.family == "gemm" and cost.precision == "int8"]
    assert [cost.weight_bytes for cost in products] == [4096 * 4096 * n for n in (3, 1, 4, 4)]
    assert after.host_ns.sum() > baseline.ops.host_ns.sum() + PRODUCTS * added * plain_launch_ns(baseline)


def test_llm_int8_of_fp32_runs_in_half_precision():
    after = kernels("llm-int8", base(tokens=1, layers=1, precision="fp32"))
    assert not any(cost.precision == "fp32" for cost in after.cost)


@pytest.mark.parametrize(("tokens", "added"), [(1, 2), (4, 2), (5, 3)])
def test_nf4_unpacks_its_scales_and_for_several_rows_its_weights(tokens, added):
    baseline = base(tokens=tokens, layers=1)
    after = kernels("nf4", baseline)
    assert len(after) - len(baseline.ops) == PRODUCTS * added
    widened = [cost for name, cost in zip(after.name, after.cost, strict=True) if name.endswith("dequantize_4bit")]
    assert [cost.write_bytes for cost in widened] == (
        [] if tokens <= 4 else [2 * 4096 * 4096 * n for n in (3, 1, 4, 4)]
    )


def test_memory_is_that_of_the_weights_that_are_replaced():
    baseline = base(tokens=1, layers=1)
    inner = 2 * 4096 * 4096 * (3 + 1 + 4 + 4)
    before = Memory(weights=inner + 1000, activations=7)
    # op_lists names all four products of a layer alike: layers of one name are one layer, counted once
    distinct = renamed(baseline, layer=[f"h.0.{i}" for i in range(len(baseline.ops))])
    assert find("llm-int8").memory(distinct, before) == Memory(weights=inner // 2 + 1000, activations=7)
    assert find("fp8-dynamic").memory(distinct, before).weights == inner // 2 + 1000
    assert find("nf4").memory(distinct, before).weights == inner // 4 + inner // 128 + 1000


@pytest.mark.parametrize(
    ("name", "tokens", "added"), [("fp8-dynamic", 64, 7), ("int8-dynamic", 64, 9), ("int8-dynamic", 1, 10)]
)
def test_dynamic_types_quantise_each_input_in_eager_passes(name, tokens, added):
    baseline = base(tokens=tokens, layers=1)
    assert len(kernels(name, baseline)) - len(baseline.ops) == PRODUCTS * added


def test_compiled_code_quantises_in_one_kernel():
    baseline = base(tokens=512, layers=1)
    alone, compiled = (
        kernels("compile", baseline),
        find("compile").transform(find("fp8-dynamic").applied(baseline, "expected"), "expected"),
    )
    assert compiled.launches.sum() - alone.launches.sum() <= PRODUCTS


def test_int8_of_one_row_has_no_tensor_cores_and_loses_by_far():
    decode = base("a100", tokens=1, host_us=1.0)
    assert predicted_speedup(find("int8-dynamic"), decode).high < 0.4


def test_why_a_format_does_not_apply():
    assert "no fp8" in find("fp8-dynamic").objection(base("a100"))
    assert "half precision" in find("int8-dynamic").objection(base(precision="fp32"))
    assert "Conv1D" in find("int8-dynamic").objection(renamed(base(), layer_type="Conv1D"))
    assert "Conv1D" in find("int4-weight-only").objection(renamed(base(), layer_type="Conv1D"))
    assert "trained" in find("nf4").objection(base(workload="train"))
    assert "V100" in find("llm-int8").objection(base("v100"))
    assert "rows of bf16" in find("fp8-dynamic").objection(base(precision="fp16"))
    assert find("fp8-dynamic:per-tensor").objection(base(precision="fp16")) is None
    assert find("int8-dynamic").objection(base(precision="fp16")) is None


def test_fp8_takes_its_granularity():
    rows, tensor = find("fp8-dynamic:per-row"), find("fp8-dynamic:per-tensor")
    decode = base("h100", tokens=1, host_us=0.1)
    assert predicted_speedup(tensor, decode).expected < predicted_speedup(rows, decode).expected
    assert "PerTensor()" in tensor.how_to(decode)
    with pytest.raises(InputError, match="granularity"):
        find("fp8-dynamic:per-block")


def test_int4_gains_on_one_row_and_loses_on_many():
    assert predicted_speedup(find("int4-weight-only"), base("a100", tokens=1, host_us=0.1)).expected > 1.7
    for tokens in (64, 256):
        assert predicted_speedup(find("int4-weight-only"), base("a100", tokens=tokens, host_us=0.1)).high < 1


def test_formats_exclude_each_other_and_waiting_excludes_graphs():
    with pytest.raises(InputError):
        parse("nf4+int8-weight-only")
    with pytest.raises(InputError):
        parse("llm-int8+cuda-graphs")


def test_int8_weights_are_widened_and_their_outputs_scaled_unless_fused():
    decode = base(tokens=1, layers=1, host_us=0.1)
    apart, fused = find("int8-weight-only"), find("int8-weight-only:fused")
    after = apart.transform(decode, "expected")
    widening = after[after.name == "torchao::widen"]
    assert [cost.bytes for cost in widening.cost] == [3 * 4096 * 4096 * n for n in (3, 1, 4, 4)]
    scaling, adding = (after[which(after.name, re.compile(rf"^aten::{name} \(").search)] for name in ("mul", "add_"))
    assert [cost.write_bytes for cost in scaling.cost] == [2 * 4096 * n for n in (3, 1, 4, 1)]
    assert len(adding) == (decode.ops.name == "aten::addmm").sum() == PRODUCTS
    assert len(fused.transform(decode, "expected")) == len(decode.ops)
    assert predicted_speedup(apart, decode).high < 0.7 < 1.2 < predicted_speedup(fused, decode).expected


def test_many_rows_pay_for_the_scaling_of_int8_outputs():
    """BERT-large in fp16 on an H200 (16 sequences of 512): two passes over 1.81 billion outputs took 10.4 ms."""
    run = base(tokens=8192, width=1024, heads=16, layers=1, precision="fp16")
    added = find("int8-weight-only").transform(run, "expected").kernel_ns.sum() - run.ops.kernel_ns.sum()
    outputs = 8192 * 1024 * (3 + 1 + 4 + 1)
    assert added == pytest.approx(outputs * 10.4e6 / 1.81e9, rel=0.2)


def test_compiled_code_widens_across_sectors():
    decode = base(tokens=1, layers=1, host_us=0.1)
    eager = find("int8-weight-only").applied(decode, "expected")
    compiled = find("compile").transform(eager, "expected")
    before, after = (ops.kernel_ns[ops.name == "torchao::widen"].sum() for ops in (eager.ops, compiled))
    assert 2 * before < after < 6 * before


def test_compiled_code_takes_each_torchao_weight_apart():
    """Unpacking takes longer than a launch, but less than the Python of eager code."""
    prefill = base(tokens=64, layers=1, host_us=5.0)
    alone = find("compile").transform(prefill, "expected").host_ns.sum()
    eager = find("fp8-dynamic").applied(prefill, "expected")
    compiled = find("compile").transform(eager, "expected").host_ns.sum()
    assert PRODUCTS * 15_000 < compiled - alone < (eager.ops.host_ns.sum() - prefill.ops.host_ns.sum()) / 3


def test_own_formats_share_one_mechanism_and_differ_by_bytes_and_factors():
    decode = base("h100", tokens=1, host_us=0.1)
    times = {name: kernels(name, decode).kernel_ns.sum() for name in ("packed-int4", "packed-int8", "awq")}
    assert times["packed-int4"] < times["awq"] < times["packed-int8"] < decode.ops.kernel_ns.sum()
    host = kernels("packed-int4", decode).host_ns.sum() - decode.ops.host_ns.sum()
    assert host == pytest.approx(7 * plain_launch_ns(decode) * inner_products(decode, conv1d=False).sum())
    added = len(kernels("awq", decode)) - len(kernels("packed-int4", decode))
    assert added == inner_products(decode, conv1d=False).sum()
    weights = Memory(weights=2 * 4096 * 4096 * 12)
    named = renamed(base(tokens=1, layers=1), layer=[f"h.0.{i}" for i in range(len(base(tokens=1, layers=1).ops))])
    four, eight = (find(name).memory(named, weights).weights for name in ("awq", "packed-int8"))
    assert (four, eight) == (weights.weights * 17 // 64, weights.weights * 33 // 64)


def test_own_formats_of_many_rows_write_the_weights_first():
    prefill = base("h100", tokens=512, host_us=0.1)
    assert predicted_speedup(find("packed-int4"), prefill).high < 1
    with pytest.raises(InputError, match="cannot be combined"):
        parse("awq+int4-weight-only")


@pytest.mark.parametrize("name", ["packed-int4", "packed-int8", "awq", "smoothquant"])
def test_own_formats_replace_conv1d_too(name):
    of_gpt2 = renamed(base(tokens=32, layers=1), layer_type="Conv1D")
    assert find(name).objection(of_gpt2) is None
    after = kernels(name, of_gpt2)
    narrow = [cost.weight_bytes for cost in after.cost if linear_product(cost) and cost.weight_bytes]
    before = [cost.weight_bytes for cost in of_gpt2.ops.cost if linear_product(cost) and cost.weight_bytes]
    assert len(narrow) == len(before) == PRODUCTS and all(a < b for a, b in zip(narrow, before, strict=True))
