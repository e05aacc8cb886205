"""Products in another order, weights made ready once, rows that are picked first, and what only looks like them."""

import numpy as np
import op_lists
import pytest
from msgspec.structs import replace
from op_lists import elementwise
from test_waste import ENGINE, linear, op, run, trained
from test_work_again import found, given

from tracekit.advise import find
from tracekit.analyzers.cost import Attention, Cost
from tracekit.analyzers.predict import Outside


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


def test_gradients_of_layers_of_the_same_sizes_are_in_order():
    hidden, scores = multiplied(4096, 512, 512), multiplied(64, 512, 4096)
    back = multiplied(4096, 512, 512, phase="backward") | {"call": ENGINE + "MmBackward0"}
    activation = op("aten::gelu", elementwise(4096 * 512, "fp32")) | given(("float", 4096, 512))
    base = trained(*[hidden, activation] * 3, hidden, scores, *[back] * 8)
    left = find("costly-algorithm").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert np.flatnonzero(left < 1).tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize(("name", "left", "late"), [("mean", 64, True), ("mean", 2048, False), ("var", 64, False)])
def test_rows_are_pooled_before_they_are_multiplied(name, left, late):
    cost = Cost(0, 4 * 4096 * 512, 4 * left * 512, "reduction", "fp32")
    pools = op(f"aten::{name}", cost) | given(("float", 64, 64, 512))
    assert found("costly-algorithm", run(multiplied(4096, 256, 512), pools)) == late


@pytest.mark.parametrize("middle", [512, 4096])
def test_a_narrow_product_between_large_ones_is_in_order(middle):
    chain = multiplied(4096, middle, 64), multiplied(4096, 64, 512)
    assert not found("costly-algorithm", run(*chain))


@pytest.mark.parametrize(("rows", "again"), [(20_000, True), (90_000, False)])
def test_rows_are_multiplied_before_they_are_gathered(rows, again):
    gathers = op("aten::index", Cost(0, 25_600_000, 25_600_000, "gather", "fp32")) | given(("float", rows, 64))
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


@pytest.mark.parametrize(("ns", "fill_ns", "gain"), [(5_189_000.0, 228_000.0, 25), (150_000.0, 228_000.0, 0)])
def test_without_shapes_a_product_with_a_diagonal_takes_longer_than_filling_it(ns, fill_ns, gain):
    """16,384 policies of 512 factors: 275 GFLOP become a copy of 34 MB."""
    fill, copy = (
        op(f"aten::{name}", call="aten::diag", ns=each) for name, each in (("fill_", fill_ns), ("copy_", 3e3))
    )
    base = run(fill, copy, op("aten::mm", call="aten::matmul", ns=ns), linear())
    assert found("one-hot-product", base) == bool(gain)
    if gain:
        worst, expected = (find("one-hot-product").transform(base, each).kernel_ns for each in ("worst", "expected"))
        assert base.ops.kernel_ns[:3].sum() > gain * expected[:3].sum()
        assert expected[:3].sum() < worst[:3].sum() < 0.1 * base.ops.kernel_ns[:3].sum()


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


@pytest.mark.parametrize(("call", "scales", "named"), [("index_add_", True, True), ("index_put_", False, False)])
def test_without_shapes_deterministic_sums_are_told_by_what_scales_the_rows(call, scales, named):
    beside = [op("aten::mul", ns=20_000.0, call="aten::index_add_")] * scales
    base = run(linear(), *beside, op("aten::_index_put_impl_", ns=700_000.0, call=f"aten::{call}"))
    assert found("sorted-gradients", base) == named
    if named:
        assert find("sorted-gradients").transform(base, "expected").kernel_ns[2] < 0.2 * base.ops.kernel_ns[2]


EDGES, NODES = 80_000, 5_000
ENDS = [
    op("aten::gather", Cost(0, 4 * EDGES * 256, 4 * EDGES * 256, "gather", "fp32"), call="aten::index_select", ns=4e5)
    | given(("float", NODES, 256), ("long int", EDGES), ("float", EDGES, 256))
] * 2
JOINED = op("aten::cat", Cost(0, 8 * EDGES * 256, 8 * EDGES * 256, "copy", "fp32"))
MESSAGE = op("aten::addmm", op_lists.product(EDGES, 64, 512, "fp32"), call="aten::linear")
ADDED = op("aten::index_add_", phase="backward", call=ENGINE + "IndexSelectBackward0", ns=400_000.0)
ADDED |= given(("float", NODES, 256), ("long int", EDGES), ("float", EDGES, 256))


def test_the_product_of_joined_ends_of_edges_is_the_sum_of_two_of_nodes():
    base = run(*ENDS, JOINED, MESSAGE, ADDED)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([64 / 256, 64 / 256, 3 * 64 / (2 * 512), NODES / EDGES, 64 / 256])
    assert "split" in find("computed-again").how_to(base)
    dropped = run(*ENDS, JOINED, op("aten::native_dropout", ns=90_000.0), MESSAGE, ADDED)
    assert "split" not in find("computed-again").how_to(dropped), "rows of one node differ"


@pytest.mark.parametrize(("adds", "part"), [([ADDED], 0.4), ([], 0.4 * 1.8)])
def test_a_gather_takes_a_time_for_each_row_and_its_gradient_comes_if_it_had_none(adds, part):
    """Each of 80,000 rows takes 0.6 ns at least, however narrow; node features need no gradient, but what a layer makes
    of them does."""
    gather = ENDS[0] | {"ns": 120_000.0, "phase": "forward"}
    layer = op("aten::mm", op_lists.product(EDGES, 16, 256, "fp32"), call="aten::linear", phase="forward")
    of_weight = op("aten::mm", call=ENGINE + "MmBackward0", phase="backward")
    base = run(gather, layer, of_weight, *adds)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left[0] == pytest.approx(part)


def test_a_network_on_each_gathered_row_runs_once_a_node():
    relu = op("aten::relu", op_lists.elementwise(EDGES * 512, "fp32")) | given(("float", EDGES, 512))
    first, second = (
        op("aten::addmm", op_lists.product(EDGES, n, k, "fp32"), call="aten::linear")
        | given(("float", EDGES, k), ("float", k, n))
        for n, k in ((512, 256), (256, 512))
    )
    sums = op("aten::index_add_", ns=400_000.0) | given(("float", NODES, 256), ("float", EDGES, 256))
    back = op("aten::threshold_backward", ns=400_000.0, phase="backward") | given(("float", EDGES, 512))
    base = run(ENDS[0], first, relu, second, sums, back)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([1, *[NODES / EDGES] * 3, 1, NODES / EDGES])
    weighted = relu | given(("float", EDGES, 512), ("float", EDGES, 1))
    left = find("computed-again").transform(run(ENDS[0], first, weighted, second, sums), "expected").kernel_ns
    assert left[3] == base.ops.kernel_ns[3], "what each edge has of its own comes between"


def test_an_interpolation_that_deterministic_algorithms_write_out_is_one_kernel_each_way():
    gather = [op("aten::fill_", ns=1_000.0, call="aten::_unsafe_index"), op("aten::index", ns=40_000.0)]
    gather[1]["call"] = "aten::_unsafe_index"
    back = ENGINE + "UnsafeIndexBackward0"
    put = op("aten::_index_put_impl_", ns=4_000_000.0, call=back, phase="backward")
    weights = op("aten::sub", ns=30_000.0)
    new = op("aten::fill_", ns=9_000.0, call="aten::conv2d")
    base = trained(linear(), *gather * 4, weights, new, put)
    waste = find("sorted-gradients")
    left = waste.transform(base, "expected")
    assert not set(left.name) & {"aten::fill_", "aten::sub", "aten::_index_put_impl_"}
    assert left.kernel_ns[left.name == "aten::index"].sum() == pytest.approx(2 * 40_000.0)
    assert "aten::sub" in waste.transform(base, "worst").name
    assert "use_deterministic_algorithms(False)" in waste.how_to(base)


@pytest.mark.parametrize(("name", "loop"), [("aten::lerp_", True), ("aten::add_", False), ("aten::relu", False)])
def test_a_loop_may_change_one_tensor_after_another_in_place(name, loop):
    assert found("loop-of-small-ops", run(linear(), *[op(name, ns=1_500.0)] * 100)) == loop


@pytest.mark.parametrize("name", ["aten::im2col", "aten::_slow_conv2d_forward", "aten::randperm"])
def test_convolutions_without_cudnn_and_random_orders_have_another_way(name):
    base = run(op(name, ns=90_000.0), linear())
    assert find("costly-algorithm").expected_speedup(base) > 1.2


ROWS = op("aten::native_layer_norm", Cost(0, 4 << 20, 4 << 20, "norm", "fp32")) | given(("float", 2048, 512))
HEAD = op("aten::addmm", op_lists.product(2048, 1024, 512, "fp32"), call="aten::linear")
HEAD |= given(("float", 1024), ("float", 2048, 512), ("float", 512, 1024))


def argmax(rows):
    return op("aten::argmax", Cost(0, 4096 * rows, 8 * rows, "reduction", "fp32")) | given(("float", rows, 1024))


@pytest.mark.parametrize(("rows", "unread"), [(32, True), (2048, False), (512, False)])
def test_rows_that_the_next_op_leaves_out_are_not_computed(rows, unread):
    base = run(linear(), ROWS, HEAD, argmax(rows))
    assert found("unused-rows", base) == unread
    assert not found("unused-rows", run(linear(), ROWS, HEAD, argmax(rows), argmax(2048)))


@pytest.mark.parametrize(("columns", "unread"), [(2048, False), (512, True)])
def test_rows_that_multiply_all_rows_read_them(columns, unread):
    other = multiplied(32, 1024, columns)
    assert found("unused-rows", run(linear(), ROWS, HEAD, other)) == unread


def test_a_part_that_is_read_beside_what_is_joined_may_be_another_tensor():
    joined = op("aten::cat", Cost(0, 9 << 20, 9 << 20, "copy", "fp32"))
    assert not found("unused-rows", run(linear(), ROWS, HEAD, argmax(32), joined))


@pytest.mark.parametrize(("side", "unread"), [(32, True), (64, False)])
def test_pixels_that_the_next_op_leaves_out_are_a_stride(side, unread):
    size = 4 * 8 * 32 * 64 * 64
    conv = op("aten::cudnn_convolution", Cost(0, size, size, "convolution", "fp32"), call="aten::conv2d", ns=900_000.0)
    conv |= given(("float", 8, 16, 64, 64), ("float", 32, 16, 3, 3))
    relu = op("aten::relu", Cost(0, size, size, "pointwise", "fp32")) | given(("float", 8, 32, side, side))
    assert found("unused-rows", run(conv, relu)) == unread
    line = op("aten::cudnn_convolution", Cost(0, size, size, "convolution", "fp32"), call="aten::conv1d", ns=900_000.0)
    line |= given(("float", 8, 16, 1, 4096), ("float", 32, 16, 1, 65))
    base = run(line, op("aten::square", ns=9_000.0) | given(("float", 8, 32, side * 4096 // 64 // 16)))
    assert found("unused-rows", base), "cuDNN gives lines a height of 1"
    worst, expected = (find("unused-rows").transform(base, each).kernel_ns[0] for each in ("worst", "expected"))
    assert worst > 2 * expected


def test_all_pairs_are_not_multiplied_for_those_of_equal_rows():
    pairs, read = multiplied(4096, 64, 4096), op("aten::sigmoid", ns=1_500.0) | given(("float", 4096))
    assert "sum(-1)" in find("unused-rows").how_to(run(pairs, read))
    assert not found("unused-rows", run(pairs, SOFTMAX, read))


MEMBERS = op("aten::eq", Cost(0, 8 * 20_000, 128 * 20_000, "pointwise", "fp32")) | given(
    ("long int", 1, 20_000), ("long int", 128, 1)
)


@pytest.mark.parametrize(("product", "found_"), [((128, 20_000, 64), True), ((128, 512, 64), False)])
def test_groups_that_a_product_adds_up_are_sums_by_index(product, found_):
    assert found("one-hot-product", run(MEMBERS, multiplied(*product))) == found_


def test_a_sparse_matrix_stays_sparse():
    dense = [
        op(f"aten::{name}", call="aten::to_dense") | given(("float", 1024, 1024)) for name in ("fill_", "index_add_")
    ]
    assert "torch.sparse.mm" in find("one-hot-product").how_to(run(*dense, multiplied(1024, 1024, 64)))


@pytest.mark.parametrize(("terms", "bag"), [(64, True), (2, False)])
def test_rows_that_are_gathered_and_summed_at_once_are_a_bag(terms, bag):
    size = terms << 20
    gathers = op("aten::gather", Cost(0, size, size, "embedding", "fp32"), call="aten::embedding")
    base = run(gathers, op("aten::sum", Cost(0, size, 1 << 20, "reduction", "fp32")), linear(4))
    assert found("spread-and-summed", base) == bag


QUERY = [
    multiplied(16, 128, 128),
    op("aten::div", Cost(0, 16_384, 8_192, "pointwise", "fp32")) | given(("float", 16, 128)),
]
GALLERY = multiplied(16, 128, 200_000)
SIZE = 200_000 * 128 * 4
NORMED = op("aten::div", Cost(0, SIZE, SIZE, "pointwise", "fp32")) | given(("float", 200_000, 128))


def cast(size, call="aten::linear"):
    return op("aten::copy_", Cost(0, 4 * size, 2 * size, "copy", "fp32"), call=call)


def test_a_model_of_one_type_casts_neither_weights_nor_what_ops_read():
    layer = op("aten::addmm", op_lists.product(512, 3072, 1024, "bf16"), call="aten::linear")
    asked, mixed = cast(512 * 1024, "aten::to"), cast(512 * 1024, "aten::addcmul")
    base = run(asked, cast(3072), cast(3072 * 1024), cast(512 * 1024), layer, mixed, op("aten::addcmul", ns=9_000.0))
    waste = find("weights-cast")
    assert waste.transform(base, "expected").call.tolist() == ["aten::to", "aten::linear", "aten::addcmul"]
    assert waste.transform(base, "worst").call.tolist() == ["aten::to", *["aten::linear"] * 2, *["aten::addcmul"] * 2]


def test_an_index_that_each_request_makes_ready_or_copies_stays():
    made = op("aten::relu", Cost(0, SIZE, SIZE, "pointwise", "fp32")) | given(("float", 200_000, 128))
    assert found("weights-cast", run(*QUERY, NORMED, GALLERY))
    assert not found("weights-cast", run(made, op("aten::softmax", ns=9_000.0), *QUERY, NORMED, GALLERY))
    copied = NORMED | {"category": "memcpy", "copies": "Memcpy HtoD (Pageable -> Device)", "copied": float(SIZE)}
    assert found("copied-again", run(*QUERY, copied, GALLERY)) and not found("copied-again", run(copied, GALLERY))


LAYERS = [op("aten::addmm", ns=20_000.0, call="aten::linear", phase="forward")] * 10
PASS = [op("aten::mm", ns=20_000.0, call=ENGINE + "AddmmBackward0", phase="backward")] * 20
ADDS = [op("aten::add_", ns=2_000.0, call=ENGINE + "torch::autograd::AccumulateGrad", phase="backward")] * 10
LOSS = op("aten::ones_like", ns=1_000.0)


def test_what_is_compared_with_lengths_is_no_constant():
    begin, read = op("aten::arange", ns=90_000.0), ("long int", 512)
    compares = op("aten::lt", ns=90_000.0)
    assert found("remade-constants", run(begin, compares | given(read), linear()))
    assert not found("remade-constants", run(begin, compares | given(read, ("long int", 8, 1)), linear()))


def parts(*between):
    part = [*LAYERS, LOSS, *PASS, *ADDS, *between]
    return run(*[each | {"ns": 2_000.0} for each in part] * 8)


def test_parts_of_a_batch_that_wait_for_launches_are_one_unless_each_updates_weights():
    base = parts()
    assert "larger parts" in find("one-call-per-item").how_to(base)
    assert find("one-call-per-item").expected_speedup(base) > 3
    assert not found("one-call-per-item", parts(op("aten::_fused_adam_", phase="optimizer")))
    assert not found("one-call-per-item", run(*[*LAYERS, LOSS, *PASS, *ADDS] * 8))


MEMBER = [
    op("aten::addmm", op_lists.product(256, 64, 32, "fp32"), call="aten::linear", ns=2_000.0)
    | given(("float", 256, 32)),
    op("aten::relu", op_lists.elementwise(256 * 64, "fp32"), ns=2_000.0) | given(("float", 256, 64)),
]
STACKED = op("aten::stack", ns=3_000.0)


def test_networks_on_one_input_are_one_unless_each_reads_what_the_last_one_wrote():
    deeper = [MEMBER[0], op("aten::relu", op_lists.elementwise(256 * 32, "fp32"), ns=2_000.0)]
    assert "stack_module_state" in find("one-call-per-item").how_to(run(*MEMBER * 8, STACKED))
    assert not found("one-call-per-item", run(*deeper * 8, STACKED))
    assert not found("one-call-per-item", run(*MEMBER * 8, op("aten::softmax", ns=3_000.0)))


def test_networks_on_one_input_are_one_in_each_round_of_a_loop():
    advances = [op("aten::mul", ns=2_000.0), op("aten::add", ns=2_000.0), op("aten::cat", ns=2_000.0)]
    base = run(*[advances[2] | {"call": "aten::cat"}, *MEMBER * 8, STACKED, *advances[:2]] * 12)
    after = find("one-call-per-item").transform(base, "expected")
    assert [(after.name == member["name"]).sum() for member in MEMBER] == [12, 12]
    assert len(after) == len(base.ops) - 12 * 7 * 2


@pytest.mark.parametrize("tables", [26, 3])
def test_tables_of_embeddings_are_one_if_there_are_many(tables):
    lookup = op("aten::gather", ns=2_000.0, call="aten::embedding")
    assert found("one-call-per-item", run(*[lookup] * tables, STACKED | {"call": "aten::cat"})) == (tables > 8)


def test_iterations_that_end_by_a_value_are_no_decisions():
    decide = [linear(64, ns=4_000.0), op("aten::max", ns=3_000.0)]
    read = op("aten::_local_scalar_dense", ns=1_500.0, category="memcpy")
    assert found("one-call-per-item", run(*[*decide, read | {"call": "aten::item"}] * 12))
    assert not found("one-call-per-item", run(*[*decide, read | {"call": "aten::is_nonzero"}] * 12))


def test_rounds_of_a_loop_have_ops_with_and_without_gradients():
    rounds = [op("aten::eq", ns=1_500.0), op("aten::mul", ns=1_500.0, phase="forward")]
    assert found("loop-of-small-ops", trained(*rounds * 40))


def test_a_constant_of_a_product_is_copied_once_in_training_too():
    size = 4 * 1024 * 2048
    copied = op("aten::copy_", ns=900_000.0, category="memcpy") | given(("float", 1024, 2048))
    copied |= {"copies": "Memcpy HtoD (Pageable -> Device)", "copied": float(size)}
    assert found("copied-again", trained(LAYER, copied, multiplied(64, 1024, 2048)))
    assert not found("copied-again", trained(LAYER, copied, multiplied(64, 1024, 2048) | {"call": "aten::linear"}))


OPERATOR = op("aten::copy_", ns=9e6, category="memcpy") | given(("float", 8192, 1024), ("float", 8192, 1024))
OPERATOR |= {"copies": "Memcpy HtoD (Pageable -> Device)", "copied": 4.0 * 8192 * 1024}
STARTS = op("aten::fill_", Cost(0, 0, 4 * 48 * 1024, "copy", "fp32"), call="aten::new_zeros")
APPLIED = multiplied(48, 1024, 8192) | given(("float", 48, 1024), ("float", 1024, 8192))


def test_an_operator_that_multiplies_all_items_after_other_ops_is_copied_once():
    base = trained(OPERATOR, STARTS, APPLIED)
    assert found("copied-again", base) and "table.to" in find("copied-again").how_to(base)
    made = Outside(np.array(["preprocessing"], dtype=object), np.array([9e6]), np.array([0.0]))
    assert not found("copied-again", replace(base, outside=made)), "the host may have written it"
    batch = ("float", 8192, 1024)
    reads = op("aten::mul", elementwise(8192 * 1024, "fp32")) | given(batch, batch)
    assert not found("copied-again", trained(OPERATOR, STARTS, reads, APPLIED)), "it makes another one of it"
    assert not found("copied-again", trained(OPERATOR, STARTS, APPLIED | {"call": "aten::linear"}))


@pytest.mark.parametrize(("items", "width"), [(8192, 48), (512, 8192)])
def test_a_batch_that_a_matrix_of_the_step_multiplies_is_new(items, width):
    batch, matrix = ("float", items, 1024), ("float", 1024, width)
    sent = OPERATOR | given(batch, batch) | {"copied": 4096.0 * items}
    makes = op("aten::mul", elementwise(1024 * width, "fp32")) | given(matrix, matrix)
    assert not found("copied-again", trained(sent, makes, multiplied(items, 1024, width) | given(batch, matrix)))


def brought(rows):
    """Return the copy of so many rows to the device, and the layer that projects them."""
    copied = op("aten::copy_", ns=9e6, category="memcpy") | given(("float", rows, 512))
    copied |= {"copies": "Memcpy HtoD (Pageable -> Device)", "copied": 2048.0 * rows}
    return [copied, multiplied(rows, 512, 256) | {"call": "aten::linear"}]


def searched(rows, batch=512):
    """Return ops that look up those of a batch among these rows, and compare them with all."""
    lookup = op("aten::gather", ns=20_000.0, call="aten::embedding") | given(("float", rows, 256), ("long int", batch))
    return [lookup, *[multiplied(batch, 256, 256) | {"call": "aten::linear"}] * 4, multiplied(batch, 256, rows)]


def test_rows_among_which_a_batch_is_looked_up_are_copied_once():
    base = run(*brought(100_000), *searched(100_000))
    assert found("copied-again", base)
    assert len(find("copied-again").transform(base, "expected")) == len(base.ops) - 1
    made = Outside(np.array(["preprocessing"], dtype=object), np.array([90e6]), np.array([0.0]))
    assert not found("copied-again", replace(base, outside=made)), "the host may have written them"
    assert not found("copied-again", run(*brought(8 * 512), *searched(8 * 512))), "negatives of each item"
    assert not found("copied-again", run(*brought(100_000), *searched(3_000))), "another table"


def test_kernels_that_a_library_tries_disappear_with_the_trial_and_one_is_planned():
    tried = op("aten::cudnn_convolution", ns=2e6, call="aten::conv2d") | {"planned": 30e6}
    base = run(*[tried] * 4, linear())
    base = replace(base, ops=base.ops.assign(launches=[40, 40, 40, 40, 1]))
    worst, expected, best = (find("planned-again").transform(base, each) for each in ("worst", "expected", "best"))
    assert worst.kernel_ns[0] == 2e6 and expected.kernel_ns[0] == 2e6 * 2 / 40
    assert expected.launches[0] == 2 and best.host_ns[0] <= 1e5
    assert expected.host_ns[0] - best.host_ns[0] == pytest.approx(0.06 * 30e6, rel=0.01)
    assert "benchmark = False" in find("planned-again").how_to(base)


def test_a_sort_needs_all_of_its_kernels():
    base = run(op("aten::sort", ns=2e6, call="aten::argsort") | {"planned": 3e6}, linear())
    base = replace(base, ops=base.ops.assign(launches=[400, 1]))
    assert find("planned-again").transform(base, "expected").kernel_ns[0] == 2e6


def test_what_steps_that_plan_are_short_of_the_mean_is_planning_too():
    base = run(*[op("aten::cudnn_convolution", ns=2e6, call="aten::conv2d") | {"planned": 30e6}] * 4, linear())
    longer, plans = replace(base, rest_ns=40e6), find("planned-again")
    worst, expected, best = (plans.applied(longer, outcome).rest_ns for outcome in ("worst", "expected", "best"))
    left = plans.applied(base, "expected").latency_ns / base.latency_ns
    assert worst == 40e6 and best == 0.0 and expected == pytest.approx(40e6 * left, rel=0.01)


def pretraining(causal=False, mask=None):
    work = Attention(8, 12, 12, 512, 512, 64, causal)
    attends = op("aten::_cudnn_attention_forward", Cost(1, 1, 1, "attention", "bf16", work=work), ns=9_000.0)
    head = op("aten::addmm", op_lists.product(4096, 50_304, 768, "bf16"), call="aten::linear", phase="forward")
    wide = given(("float", 4096, 50_304))
    loss = [op(f"aten::{name}", ns=900_000.0, phase="forward") | wide for name in ("_log_softmax", "nll_loss_forward")]
    back = op("aten::_log_softmax_backward_data", ns=900_000.0, phase="backward") | wide
    return run(attends | {"mask": mask}, head | given(("float", 50_304)), *loss, back)


@pytest.mark.parametrize("mask", [None, [8, 1, 1, 512]])
def test_logits_of_masked_tokens_are_told_by_attention_to_both_sides(mask):
    base = pretraining(mask=mask)
    assert "ne(-100)" in find("unused-logits").how_to(base)
    left = find("unused-logits").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([1.0, 0.3, 0.3, 0.3, 0.3])
    assert not found("unused-logits", pretraining(causal=True))
    assert not found("unused-logits", pretraining(mask=[8, 1, 512, 512]))


def test_layers_whose_result_is_joined_are_no_networks_on_one_input():
    layer = op("aten::addmm", op_lists.product(64, 256, 256, "fp32"), call="aten::linear", ns=2_000.0)
    layer |= given(("float", 256), ("float", 64, 256), ("float", 256, 256))
    relu = op("aten::relu", op_lists.elementwise(64 * 256, "fp32"), ns=2_000.0) | given(("float", 64, 256))
    assert not found("one-call-per-item", run(*[layer, relu] * 24, STACKED))


LOOKUPS, HEADS = 1 << 22, 8


def looked_up(table: int):
    """Return four million lookups in a table of so many rows, and their gradient, which sorts them."""
    written = op_lists.elementwise(LOOKUPS * HEADS, "fp32").write_bytes
    shapes = ("float", table, HEADS), ("long int", LOOKUPS, HEADS), ("float", LOOKUPS, HEADS)
    cost = Cost(0, written // 4, written, "gather", "fp32")
    reads = op("aten::gather", cost, call="aten::embedding", phase="forward", ns=2_500_000.0) | given(*shapes)
    adds = op("aten::embedding_dense_backward", phase="backward", call=ENGINE + "EmbeddingBackward0", ns=3_400_000.0)
    return reads, adds | given(("float", 2048, 2048, HEADS), ("long int", 2048, 2048))


@pytest.mark.parametrize(("table", "us", "few"), [(32, 3_400, True), (1 << 20, 3_400, False), (32, 200, False)])
def test_gradients_of_a_small_table_that_is_looked_up_very_often_take_long_to_sort(table, us, few):
    reads, adds = looked_up(table)
    base = trained(reads, adds | {"ns": 1000.0 * us})
    assert found("sorted-gradients", base) == few
    if few:
        left = find("sorted-gradients").transform(base, "expected").kernel_ns / base.ops.kernel_ns
        moves_ns = reads["cost"].write_bytes / base.gpu.bandwidth * 1e9
        assert left[1:3].tolist() == pytest.approx([3 * 3 * moves_ns / 5_900_000.0] * 2)
        assert "one_hot" in find("sorted-gradients").how_to(base)
