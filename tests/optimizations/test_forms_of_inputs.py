"""Padding to a maximum that is set, masks that make attention slower, running sums in 64 bits, and tensors that are put
in another order before they leave the GPU."""

import pytest
from msgspec.structs import replace
from test_waste import ATTENTION, copy, in_fp64, linear, masked, op, run, trained

from tracekit.advise import find
from tracekit.analyzers.cost import Cost, estimate_ns


def left(waste, base, outcome="expected"):
    """Return the fraction of each op's kernel time that remains."""
    return find(waste).transform(base, outcome).kernel_ns / base.ops.kernel_ns


def test_more_is_padding_below_a_maximum_that_is_set_and_attention_grows_with_the_square():
    longest = replace(ATTENTION, work=replace(ATTENTION.work, queries=1001, keys=1001))
    usual = left("padding", run(linear(), masked(8, 1, 1001, 1001) | {"cost": longest}))
    below = left("padding", run(linear(), masked(8, 1, 1024, 1024)))
    seconds = replace(ATTENTION, work=replace(ATTENTION.work, queries=1500, keys=1500))
    assert left("padding", run(linear(), masked(8, 1, 1500, 1500) | {"cost": seconds}))[0] == below[0]
    assert below[0] < usual[0] < 1
    assert usual[1] == pytest.approx(usual[0] ** 2) and below[1] == pytest.approx(below[0] ** 2)


def test_few_lengths_are_advised_where_the_attention_plans_each_new_one():
    costs = [replace(ATTENTION, work=replace(ATTENTION.work, backend=backend)) for backend in ("cudnn", "efficient")]
    codes = [find("padding").how_to(run(linear(), masked(8, 1, 1024, 1024) | {"cost": cost})) for cost in costs]
    assert ["cuDNN" in code for code in codes] == [True, False]


def test_attention_without_a_mask_takes_the_modelled_time():
    modelled = estimate_ns(ATTENTION, run(linear()).gpu)
    usual, slow = (run(masked(1024, 1024) | {"ns": times * modelled}) for times in (1, 3))
    times = [find("explicit-mask").transform(base, "expected").kernel_ns[0] for base in (usual, slow)]
    assert times[0] == pytest.approx(times[1]) and times[0] < modelled
    assert find("explicit-mask").transform(slow, "worst").kernel_ns[0] == pytest.approx(3 * modelled)


def test_a_mask_that_is_the_same_for_all_queries_leaves_all_pairs_and_none_is_made_ready():
    ready = op("aten::where", call="aten::scaled_dot_product_attention", ns=90_000.0)
    modelled = estimate_ns(ATTENTION, run(linear()).gpu)
    rest = [
        find("explicit-mask").transform(
            run(linear(), ready, masked(1, 1, side, 1024) | {"ns": 3 * modelled}), "expected"
        )
        for side in (1, 1024)
    ]
    assert all(len(ops) == 2 and "aten::where" not in ops.name for ops in rest)
    assert rest[1].kernel_ns[1] < rest[0].kernel_ns[1] == pytest.approx(modelled)


def test_running_sums_in_64_bits_keep_their_time():
    wide = in_fp64(Cost(1 << 24, 1 << 26, 1 << 26, "pointwise", "fp32"))
    rest = left("double-precision", run(op("aten::cumsum", wide), op("aten::exp", wide)))
    assert rest[0] == 1.0 and rest[1] <= 0.6


def test_without_64_bits_nothing_is_cast_to_32_and_gathers_owe_them_their_bytes_alone():
    gather = in_fp64(Cost(0, 1 << 26, 1 << 26, "gather", "fp32"))
    slow = 3 * estimate_ns(gather, run(linear()).gpu)
    casts = op("aten::copy_", replace(in_fp64(Cost(0, 1 << 26, 1 << 26, "copy", "fp32")), write_bytes=1 << 26))
    rest = left("double-precision", run(casts, op("aten::gather", gather, ns=slow)))
    assert rest[0] == 0.0 and rest[1] == pytest.approx(0.5, abs=0.05)


PAIRS = [(size, 60.0 * size / 1e3) for size in (1 << 20, 1 << 21, 1 << 22) for _ in range(3)]


def test_tensors_that_stay_are_not_put_in_order_to_leave():
    ordered = [
        row
        for size, ns in PAIRS
        for row in (
            op("aten::copy_", ns=9 * size / 1e3, phase="forward"),
            copy(size, ns=ns, name="Memcpy DtoH (Device -> Pinned)"),
        )
    ]
    back = [copy(size, ns=ns, name="Memcpy HtoD (Pinned -> Device)") for size, ns in PAIRS]
    base = trained(linear(phase="forward"), *ordered, linear(phase="backward"), *back)
    assert (base.ops.name == "aten::copy_").sum() == 3 * len(PAIRS)
    assert "aten::copy_" not in find("copied-again").transform(base, "expected").name
