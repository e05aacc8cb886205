"""Effects of compiling other than fusion."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base, elementwise, product
from started import started
from test_waste import op, run

from tracekit.advise import find, parse
from tracekit.advise.optimizations.compile import BREAK
from tracekit.advise.optimizations.cuda_graphs import KEPT_GUARDS, REPLAY_NS, guards_ns
from tracekit.analyzers.cost import Norm, estimate_ns
from tracekit.analyzers.predict import plain_launch_ns
from tracekit.analyzers.predict.traced_step import decisions
from tracekit.analyzers.predict.transforms.fusion import fused

DECODE = Path(__file__).parents[2] / "examples/traces/h200_llama-1b_decode.json.gz"
TRACES = sorted(DECODE.parent.glob("h200_*.json.gz"))


def with_head(baseline, outputs):
    """Return a run whose last product is with the weights of a vocabulary."""
    costs = [*baseline.ops.cost[:-1], product(4096, outputs, 4096, "fp16")]
    kernel = [*baseline.ops.kernel_ns[:-1], estimate_ns(costs[-1], baseline.gpu)]
    return replace(baseline, ops=baseline.ops.assign(cost=costs, kernel_ns=kernel))


def head_ns(baseline):
    return find("compile").transform(baseline, "expected").kernel_ns[-1]


def test_a_product_of_unaligned_rows_is_padded():
    baseline = base(tokens=4096, layers=1, precision="fp16")
    odd, even = with_head(baseline, 50257), with_head(baseline, 50264)
    assert head_ns(even) == pytest.approx(even.ops.kernel_ns[-1])
    assert head_ns(odd) < 0.5 * odd.ops.kernel_ns[-1]
    assert head_ns(even) < head_ns(odd) < 1.5 * head_ns(even)


def test_elementwise_kernels_without_shapes_are_fused_by_their_time():
    baseline = base(tokens=4096, layers=2, precision="fp16")
    pointwise = [cost.family == "pointwise" for cost in baseline.ops.cost]
    cost = [None if each else cost for each, cost in zip(pointwise, baseline.ops.cost, strict=True)]
    unnamed = replace(baseline, ops=baseline.ops.assign(cost=cost))
    named = replace(unnamed, recorded=replace(unnamed.recorded, elementwise=np.asarray(pointwise, dtype=float)))
    told, by_name, unknown = (find("compile").applied(run, "expected").ops for run in (baseline, named, unnamed))
    assert told.launches.sum() == by_name.launches.sum() < unknown.launches.sum()
    assert by_name.kernel_ns.sum() == pytest.approx(told.kernel_ns.sum(), rel=0.05)
    assert by_name.kernel_ns.sum() < 0.97 * unknown.kernel_ns.sum()


def test_fp32_products_take_other_kernels_on_hopper_only():
    for gpu, factor in (("h200", 0.83), ("a100", 1.0)):
        baseline = base(gpu, tokens=512, layers=1, precision="fp32")
        assert head_ns(baseline) == pytest.approx(factor * baseline.ops.kernel_ns[-1])


def test_a_graph_keeps_guards_but_unpacks_no_weights():
    """Unpacking torchao's weights takes milliseconds of each call, which a graph does not repeat."""
    compiled = parse("fp8-dynamic+compile").applied(started(DECODE), "expected")
    graphed = parse("cuda-graphs").applied(compiled, "expected")
    guards = KEPT_GUARDS.expected * guards_ns(compiled, "expected")
    assert compiled.ops.host_ns[0] > 2e6 > 4 * guards
    assert graphed.ops.host_ns.sum() == pytest.approx(guards + REPLAY_NS.expected)


def test_a_branch_on_a_tensor_of_the_host_breaks_the_graph():
    whole, broken = (replace(base(), decisions=number) for number in (0, 12))
    entered = [find("compile").applied(run, "expected").entry_ns for run in (whole, broken)]
    assert entered[1] - entered[0] == pytest.approx(12 * BREAK.expected * plain_launch_ns(whole))


def test_a_branch_that_reads_the_device_is_no_branch_on_a_tensor_of_the_host():
    rows = [("aten::is_nonzero", "op", 0), ("aten::is_nonzero", "op", 100), ("cudaMemcpyAsync", "runtime", 105)]
    host = pd.DataFrame(rows, columns=["name", "category", "start_ns"]).assign(duration_ns=[50, 50, 5])
    assert decisions(host) == 1
    assert decisions(host[:0]) == 0


def test_copies_on_the_device_and_lookups_by_tensors_are_fused():
    copy, after = elementwise(4096, "bf16", "copy"), elementwise(4096, "bf16")
    ops = (
        base(layers=1)
        .ops[:4]
        .assign(
            name=["aten::copy_", "aten::index", "aten::mul", "aten::copy_"],
            category=["memcpy", "kernel", "kernel", "memcpy"],
            cost=pd.Series([copy, None, after, copy], dtype=object),
        )
    )
    fused = find("compile").transform(replace(base(), ops=ops), "expected")
    assert fused.launches.tolist() == [1]
    waited = find("compile").transform(replace(base(), ops=ops.assign(sync=[False, False, False, True])), "expected")
    assert waited.launches.tolist() == [1, 1]


def test_generated_code_calls_a_library_to_sort():
    near, sort = elementwise(4096, "fp32"), replace(elementwise(4096, "fp32", "reduction"), access="sort")
    ops = base(layers=1).ops[:3].assign(cost=pd.Series([near, sort, near], dtype=object), kernel_ns=[9e3, 9e5, 9e3])
    after = find("compile").transform(replace(base(), ops=ops), "expected")
    assert after.launches.tolist() == [1, 1, 1] and after.kernel_ns.max() == 9e5


@pytest.mark.parametrize(("call", "launches"), [("multinomial", 3), ("abs", 1)])
def test_generated_code_leaves_some_calls_and_complex_numbers_to_libraries(call, launches):
    near = op("aten::mul", elementwise(4096, "fp32"))
    inside = op("aten::copy_", elementwise(4096, "fp32", "copy"), call=f"aten::{call}")
    assert len(find("compile").transform(run(near, inside, near), "expected")) == launches
    complex_ = {"inputs": (json.dumps([[64, 64]]), json.dumps(["c10::complex<float>"]))}
    assert len(find("compile").transform(run(near, inside | complex_, near), "expected")) == 3


def test_statistics_over_channels_are_kernels_before_what_uses_them():
    normalized, after = elementwise(64 * 56 * 56, "fp32", "norm"), elementwise(64 * 56 * 56, "fp32")
    forward, backward = (replace(normalized, work=Norm(channels=64, backward=each)) for each in (False, True))
    ops = (
        base(layers=1)
        .ops[:4]
        .assign(
            name=["aten::add_", "aten::cudnn_batch_norm", "aten::relu", "aten::cudnn_batch_norm_backward"],
            cost=pd.Series([replace(after, read_bytes=16, write_bytes=8), forward, after, backward], dtype=object),
        )
    )
    compiled = find("compile").transform(replace(base(), ops=ops), "expected")
    assert compiled.launches.tolist() == [1, 2, 1, 3, 1]  # the counter, statistics, their use with relu, gradients


def test_fusing_saves_the_share_of_bytes_that_no_longer_move():
    """Two of the four tensors stay on chip, at the bandwidth at which the kernels moved them."""
    large = elementwise(1 << 28, "fp32")
    for slower in (0.7, 1.0, 1.4):
        times = [slower * estimate_ns(large, base().gpu)] * 2
        ops = base(layers=1).ops[:2].assign(cost=pd.Series([large, large], dtype=object), kernel_ns=times)
        saved = 1 - fused(ops, base().gpu, "best", within_layer=False).kernel_ns.sum() / sum(times)
        assert 0.45 < saved < 0.55


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
@pytest.mark.parametrize("outcome", ["worst", "expected", "best"])
def test_what_takes_longer_than_its_bytes_is_not_saved(trace, outcome):
    """Reads of single numbers, resizes and copies from the host take as long beside what they are fused with."""
    baseline = started(trace)
    moving = [1.5 * estimate_ns(cost, baseline.gpu) if cost else 0.0 for cost in baseline.ops.cost]
    slow = baseline.ops.assign(kernel_ns=20 * baseline.ops.kernel_ns)
    for ops in (baseline.ops, slow):
        after = fused(ops, baseline.gpu, outcome, within_layer=False).kernel_ns.sum()
        assert np.maximum(ops.kernel_ns - moving, 0.0).sum() <= after * (1 + 1e-9) <= ops.kernel_ns.sum() * (1 + 2e-9)


def test_a_lookup_of_scattered_numbers_keeps_its_time():
    near = elementwise(1 << 24, "fp32")
    ops = base(layers=1).ops[:2].assign(name=["aten::index", "aten::mul"], kernel_ns=[9e6, 9e4])
    after = find("compile").transform(
        replace(base(), ops=ops.assign(cost=pd.Series([None, near], dtype=object))), "best"
    )
    assert after.launches.tolist() == [1] and after.kernel_ns.sum() > 8.9e6
