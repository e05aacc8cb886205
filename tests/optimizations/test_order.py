"""Products in another order, weights made ready once, rows that are picked first, and what only looks like them."""

import op_lists
import pytest
from test_waste import ENGINE, linear, op, run, trained
from test_work_again import found, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost


def multiplied(m, k, n, **more):
    cost = op_lists.product(m, n, k, "fp32")
    return op("aten::mm", cost, call="aten::matmul", **more) | given(("float", m, k), ("float", k, n))


SCORES = multiplied(4096, 64, 4096)
SCALED = op("aten::mul", op_lists.elementwise(4096 * 4096, "fp32")) | given(("float", 4096, 4096), ("float",))
SOFTMAX = op("aten::_softmax", op_lists.elementwise(4096 * 4096, "fp32", "softmax")) | given(("float", 4096, 4096))
VALUES = multiplied(4096, 4096, 64)


def test_a_large_product_between_small_ones_is_never_made_unless_a_softmax_reads_it():
    base = run(SCORES, SCALED, VALUES)
    assert found("costly-algorithm", base) and not found("costly-algorithm", run(SCORES, SOFTMAX, VALUES))
    left = find("costly-algorithm").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([64 / 4096] * 3)
    assert "a @ (b @ c)" in find("costly-algorithm").how_to(base)


def test_gradients_of_products_out_of_order_are_out_of_order_too():
    back = multiplied(64, 4096, 4096, phase="backward") | {"call": ENGINE + "MmBackward0"}
    base = trained(SCORES, VALUES, back)
    left = find("costly-algorithm").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert sum(left < 0.1) == 3


@pytest.mark.parametrize("middle", [512, 4096])
def test_a_narrow_product_between_large_ones_is_in_order(middle):
    chain = multiplied(4096, middle, 64), multiplied(4096, 64, 512)
    assert not found("costly-algorithm", run(*chain))


@pytest.mark.parametrize(("rows", "again"), [(20_000, True), (90_000, False)])
def test_rows_are_multiplied_before_they_are_gathered(rows, again):
    gathers = op("aten::index", Cost(0, 25_600_000, 25_600_000, "gather", "fp32")) | {"gathered": (rows, 64)}
    base = run(gathers, multiplied(100_000, 64, 256))
    assert found("computed-again", base) == again


WEIGHT, INPUT = ("float", 1024, 512), ("float", 64, 512)
LAYER = op("aten::mm", op_lists.product(64, 1024, 512, "fp32"), call="aten::linear") | given(
    INPUT, ("float", 512, 1024)
)


def scales(*tensors):
    size = 4 * 1024 * 512
    return op("aten::mul", Cost(1024 * 512, size, size, "pointwise", "fp32")) | given(*tensors)


@pytest.mark.parametrize(("tensor", "made"), [(WEIGHT, True), (INPUT, False)])
def test_a_weight_that_each_pass_scales_is_made_once(tensor, made):
    base = run(*[scales(tensor, ("float", 1024, 1)), LAYER] * 8)
    assert found("weights-cast", base) == made
    assert not found("weights-cast", trained(*[scales(tensor), LAYER] * 8))


def adapted(narrow, added="aten::add"):
    wide = given(("float", 64, 1024), ("float", 64, 1024))
    size = 4 * 64 * 1024
    add = op(added, Cost(64 * 1024, 2 * size, size, "pointwise", "fp32")) | wide
    return [LAYER, multiplied(64, 512, narrow), multiplied(64, narrow, 1024), add]


def test_adapters_beside_layers_are_merged_unless_they_are_wide_or_gates():
    base = run(*adapted(16) * 6)
    assert found("weights-cast", base) and len(find("weights-cast").transform(base, "expected")) == 6
    assert not found("weights-cast", run(*adapted(512) * 6))
    assert not found("weights-cast", run(*adapted(16, "aten::mul") * 6))


def test_a_diagonal_matrix_is_a_vector_unless_it_is_added_to_another():
    made = [op(f"aten::{name}", call="aten::diag") | given(("float", 1024, 1024)) for name in ("fill_", "copy_")]
    added = op("aten::add", ns=9_000.0) | given(("float", 1024, 1024))
    product = multiplied(1024, 1024, 1024)
    assert found("one-hot-product", run(*made, product))
    assert not found("one-hot-product", run(*made, added, product))


@pytest.mark.parametrize(("rows", "whole"), [(512, True), (190_000, False)])
def test_a_table_that_is_copied_for_a_few_rows_stays_on_the_gpu(rows, whole):
    table = ("float", 200_000, 64)
    size = 200_000 * 64 * 4
    comes = op("aten::copy_", ns=3_000_000.0, category="memcpy") | given(table)
    comes |= {"copies": "Memcpy HtoD (Pageable -> Device)", "copied": float(size)}
    picks = op("aten::index", Cost(0, 256 * rows, 256 * rows, "gather", "fp32"), ns=9_000.0) | given(table)
    assert found("unused-rows", run(comes, picks, linear())) == whole


def test_deterministic_sums_are_named():
    put = op("aten::_index_put_impl_", ns=2_000_000.0, call="aten::index_add_")
    base = run(linear(), put | given(("float", 1024, 64), ("float", 4_000, 64)))
    assert "use_deterministic_algorithms(False)" in find("sorted-gradients").how_to(base)


@pytest.mark.parametrize(("name", "loop"), [("aten::lerp_", True), ("aten::add_", False), ("aten::relu", False)])
def test_a_loop_may_change_one_tensor_after_another_in_place(name, loop):
    assert found("loop-of-small-ops", run(linear(), *[op(name, ns=1_500.0)] * 100)) == loop


@pytest.mark.parametrize("name", ["aten::im2col", "aten::_slow_conv2d_forward", "aten::randperm"])
def test_convolutions_without_cudnn_and_random_orders_have_another_way(name):
    base = run(op(name, ns=90_000.0), linear())
    assert find("costly-algorithm").expected_speedup(base) > 1.2
