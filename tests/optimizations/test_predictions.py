from math import exp

import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import OPTIMIZATIONS, find, predicted_speedup, refusal
from tracekit.advise.optimizations.attention_backends import preferred
from tracekit.analyzers.predict import changed, widths, written_out

BY_ID = {optimization.id: optimization for optimization in OPTIMIZATIONS}
LAUNCH_BOUND = {"tokens": 1, "width": 768, "heads": 12, "layers": 12, "precision": "fp32"}
DEVICE_BOUND = {"tokens": 4096, "keys": 4096, "width": 4096, "precision": "fp32", "host_us": 2.0}


def speedup(name, baseline):
    assert BY_ID[name].objection(baseline) is None
    return predicted_speedup(BY_ID[name], baseline)


def test_ids_are_unique():
    assert len(BY_ID) == len(OPTIMIZATIONS)


@pytest.mark.parametrize("name", BY_ID)
@pytest.mark.parametrize("gpu", ["t4", "a100", "h200", "mi300x"])
@pytest.mark.parametrize("shape", [LAUNCH_BOUND, DEVICE_BOUND, {**LAUNCH_BOUND, "precision": "fp16"}])
def test_an_interval_holds_its_expectation_and_the_transform_keeps_the_table(name, gpu, shape):
    baseline = base(gpu, batch_size=1, **shape)
    if BY_ID[name].objection(baseline) is None:
        gain = predicted_speedup(BY_ID[name], baseline)
        assert 0 < gain.low <= gain.expected <= gain.high
        after = BY_ID[name].transform(baseline, "expected")
        assert after.frame().dtypes.tolist() == baseline.ops.frame().dtypes.tolist()


def test_what_changes_nothing_may_be_measured_as_a_little():
    nothing = predicted_speedup(BY_ID["tf32"], base("h200", **LAUNCH_BOUND))
    repeat = widths("timed").repeat
    assert (nothing.low, nothing.expected, nothing.high) == pytest.approx((exp(-repeat), 1.0, exp(repeat)), abs=0.001)


def test_the_transforms_leave_the_baseline_alone():
    baseline = base(**LAUNCH_BOUND)
    before = baseline.ops.frame().copy()
    for optimization in OPTIMIZATIONS:
        if optimization.objection(baseline) is None:
            optimization.transform(baseline, "expected")
    assert before.equals(baseline.ops.frame())


def test_a_launch_bound_run_gains_from_graphs_and_not_from_smaller_numbers():
    baseline = base("h200", **LAUNCH_BOUND)
    assert speedup("cuda-graphs", baseline).low > 3
    assert 0.9 < speedup("compile", baseline).low < speedup("compile", baseline).high < 6
    assert speedup("half-precision", baseline).high < 1.08
    assert speedup("tf32", baseline).high < 1.05


def test_a_compute_bound_run_gains_from_tensor_cores_and_not_from_graphs():
    baseline = base("a100", **DEVICE_BOUND)
    assert speedup("half-precision", baseline).low > 3
    assert speedup("tf32", baseline).low > 2
    assert speedup("cuda-graphs", baseline).high < 1.1 if BY_ID["cuda-graphs"].objection(baseline) is None else True


def test_weights_in_four_bits_pay_where_weights_are_read_and_not_at_large_batch():
    decode = base("a100", tokens=1, precision="bf16", host_us=2.0)
    assert 1.5 < speedup("int4-weight-only", decode).expected < 4
    assert speedup("int8-weight-only", decode).expected < speedup("int4-weight-only", decode).expected
    prefill = base("a100", tokens=512, precision="bf16", host_us=2.0)
    assert speedup("int4-weight-only", prefill).high < 1


def test_quantizing_small_layers_loses():
    small = base("h200", **{**LAUNCH_BOUND, "precision": "bf16"})
    assert speedup("int4-weight-only", small).high < 1


def test_a_t4_is_never_offered_flash_attention_bf16_or_tf32():
    baseline = base("t4", **DEVICE_BOUND)
    half = base("t4", **{**DEVICE_BOUND, "precision": "fp16"})
    assert "float16" in BY_ID["half-precision"].how_to(baseline)
    assert "TF32" in BY_ID["tf32"].objection(baseline)
    assert preferred(baseline.gpu, half=False) == preferred(half.gpu, half=True) == "efficient"
    assert BY_ID["int4-weight-only"].objection(half)


def test_attention_written_out_is_found_once_a_layer_and_shrinks():
    baseline = base(**DEVICE_BOUND, layers=3)
    assert len(written_out(baseline)) == 3
    after = BY_ID["sdpa"].transform(baseline, "expected")
    assert len(baseline.ops) - len(after) == 3 * 3
    assert after.kernel_ns.sum() < baseline.ops.kernel_ns.sum()
    attention = next(cost for cost in after.cost if cost.family == "attention")
    assert attention.flops == 4 * 32 * 4096 * 4096 * 128


def test_half_precision_on_half_precision_is_refused():
    assert "already" in BY_ID["half-precision"].objection(base(precision="bf16"))


def test_batching_is_a_throughput_and_reads_the_weights_once():
    baseline = base("h200", tokens=1, host_us=2.0, batch_size=1)
    assert 4 < speedup("batching", baseline).expected <= 8
    assert BY_ID["batching"].work(baseline) == 8


def test_batching_that_does_not_fit_is_refused():
    full = base("t4", batch_size=1, weight_bytes=2 * 10**9, peak_memory_bytes=14 * 10**9)
    assert "16 GB hold one of 1" in refusal(BY_ID["batching"], full)


def test_fusing_never_takes_longer_and_saves_launches():
    baseline = base(tokens=2048, layers=2)
    known = changed(baseline.ops.layer_type, baseline.ops.layer_type == "GELU", "NewGELUActivation")
    baseline = replace(baseline, ops=baseline.ops.assign(layer_type=known))
    after = BY_ID["fused-kernels"].transform(baseline, "expected")
    assert after.launches.sum() < baseline.ops.launches.sum()
    assert after.kernel_ns.sum() < baseline.ops.kernel_ns.sum()


def test_no_graph_records_a_copy_that_the_host_waits_for():
    baseline = base(tokens=1, layers=4)
    fourth = baseline.ops.index == 3
    copied = baseline.ops.assign(category=changed(baseline.ops.category, fourth, "memcpy"), sync=fourth)
    objection = find("cuda-graphs").objection(replace(baseline, ops=copied))
    assert objection is not None and objection.startswith("1 times per step the host waits for a copy")
    start = baseline.ops.index == 0
    first = baseline.ops.assign(category=changed(baseline.ops.category, start, "memcpy"), sync=start)
    assert find("cuda-graphs").objection(replace(baseline, ops=first)) is None
