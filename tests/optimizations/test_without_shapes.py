"""Waste that times, repetition and the order of ops show without shapes, work on zeros, and what only looks like it."""

import numpy as np
import op_lists
import pytest
from msgspec.structs import replace
from test_order import multiplied
from test_waste import ENGINE, copy, linear, op, run
from test_work_again import found, given

from tracekit.advise import find
from tracekit.advise.waste.frozen import backward_of_frozen
from tracekit.analyzers.cost import Attention, Cost


def timed(*ops):
    """Return ops of these names and times in microseconds."""
    return [op(f"aten::{name}", ns=1000.0 * us) for name, us in ops]


OPERANDS = timed(("elu", 30), ("copy_", 60))


@pytest.mark.parametrize(("between", "late"), [(("sum", 400), True), (("_softmax", 400), False), (("sum", 40), False)])
def test_a_large_product_between_small_ones_takes_long_to_read_unless_a_softmax_reads_it(between, late):
    base = run(*OPERANDS, *timed(("bmm", 400), between, ("copy_", 25), ("bmm", 400)))
    assert found("costly-algorithm", base) == late


def test_gradients_of_products_out_of_order_are_as_long():
    back = [op(name, call=ENGINE + "BmmBackward0", ns=390_000.0, phase="backward") for name in ("aten::bmm",) * 2]
    base = run(*OPERANDS, *timed(("bmm", 400), ("sum", 400), ("bmm", 400)), *back)
    left = find("costly-algorithm").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left.tolist() == pytest.approx([1, 1] + [60 / 800] * 5)


FRAMES = [copy(1e6, ns=20_000.0), *timed(("div", 2)), op("aten::cat", ns=40_000.0)]


def encoder(written_us: float, call: str = "aten::conv2d"):
    conv = op("aten::cudnn_convolution", call=call, ns=700_000.0)
    return [conv, *timed(("add_", written_us)), conv, *timed(("addmm", 9), ("tanh", 2))]


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        ([*FRAMES, *encoder(250)], True),
        ([*FRAMES, *encoder(10)], False),  # frames as channels
        ([*FRAMES, *encoder(250, "aten::conv3d")], False),
        ([copy(1e6), *FRAMES, *encoder(250)], False),  # two came
        ([*FRAMES[:1], *timed(("div", 20)), FRAMES[2], *encoder(250)], False),
    ],
)
def test_a_window_of_frames_takes_longer_to_join_than_the_new_one(rows, again):
    base = run(*rows)
    assert found("computed-again", base) == again
    if again:
        left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
        assert left.tolist() == pytest.approx([1, 1, 1, 0.05, 0.05, 0.05, 1, 1])


ORDER = op("aten::randperm", ns=2_000.0)
FROZEN = [op("aten::cudnn_convolution", ns=90_000.0, phase="forward")] * 4
UPDATE = [
    linear(phase="forward") | {"differentiable": True},
    op("aten::mm", ns=20_000.0, phase="backward"),
    op("aten::_fused_adam_", ns=9_000.0, phase="optimizer"),
]


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        ([ORDER, *[*FROZEN, *UPDATE] * 4] * 3, 32),
        ([ORDER, *[*FROZEN, *UPDATE] * 4], 0),
        ([ORDER, copy(1e6), *[*FROZEN, *UPDATE] * 4] * 3, 0),
        ([ORDER, *[*FROZEN, op("aten::dropout", ns=9_000.0, phase="forward"), *UPDATE] * 4] * 3, 0),
    ],
)
def test_a_frozen_network_encodes_the_items_of_a_step_once_for_all_epochs(rows, again):
    base = run(*rows)
    left = find("computed-again").transform(base, "expected")
    assert found("computed-again", base) == bool(again) and len(left) == len(base.ops) - again


def hot(us: float):
    return [op(f"aten::{name}", call="aten::one_hot", ns=1000.0 * us) for name in ("fill_", "scatter_")]


@pytest.mark.parametrize(
    ("after", "counts"),
    [(("sum", 500), True), (("sum", 20), False), (("cudnn_convolution", 500), False)],
)
def test_one_hot_rows_that_are_added_up_count(after, counts):
    assert found("one-hot-product", run(*hot(400), *hot(400), *timed(("mul", 900), after))) == counts


def test_a_large_square_matrix_that_nothing_writes_is_that_of_a_graph():
    edges, thin = multiplied(8192, 8192, 64), op("aten::relu", op_lists.elementwise(8192 * 64, "fp32"))
    made = op("aten::exp", op_lists.elementwise(8192 * 8192, "fp32")) | given(("float", 8192, 8192))
    base = run(edges, thin, edges)
    assert "to_sparse_csr" in find("one-hot-product").how_to(base)
    ns = [find("one-hot-product").transform(base, outcome).kernel_ns for outcome in ("worst", "expected")]
    assert ns[0].tolist() == base.ops.kernel_ns.tolist()
    work = base.ops.cost[0].work
    assert ns[1].tolist() == [0.155 * work.m * work.n, ns[0][1], 0.155 * work.m * work.n], (
        "as many numbers as the result"
    )
    for rows in ([made, edges, edges], [edges], [multiplied(8192, 8192, 4096)] * 2, [multiplied(64, 8192, 8192)] * 2):
        assert not found("one-hot-product", run(*rows))


def test_iterations_of_a_solver_are_no_loop_of_small_ops():
    loop, read = timed(("mul", 1.5), ("addcmul_", 1.5), ("sum", 1.5)), op("aten::_local_scalar_dense", ns=1_500.0)
    assert found("loop-of-small-ops", run(linear(), *[*loop, read] * 40))
    assert not found("loop-of-small-ops", run(linear(), *[*loop, op("aten::dot", ns=1_500.0), read] * 40))


def back(weight: int, us: float):
    shapes = given(("float", 8, 64, 32, 32), ("float", 8, 64, 32, 32), ("float", weight, 64, 3, 3))
    cost = Cost(0, 1 << 20, 1 << 20, "convolution", "fp32")
    call = ENGINE + "ConvolutionBackward0"
    return op("aten::convolution_backward", cost, call=call, ns=1000.0 * us, phase="backward") | shapes


def older(weight: int):
    return op("aten::add_", call=ENGINE + "torch::autograd::AccumulateGrad", ns=2_000.0, phase="backward") | given(
        ("float", weight, 64, 3, 3), ("float", weight, 64, 3, 3)
    )


@pytest.mark.parametrize(("last_us", "left"), [(40.0, 2), (100.0, 4)])
def test_the_target_of_a_loss_by_a_frozen_network_needs_no_backward_pass(last_us, left):
    """Its pass ends without a gradient of the network's input, which takes less time."""
    adam = op("aten::_fused_adam_", ns=9_000.0, phase="optimizer") | given(("float", 16, 64, 3, 3))
    frozen = [back(32, 100), back(48, last_us), back(32, 100), older(32), back(48, 100), older(48)]
    base = run(linear(phase="forward"), *frozen, back(16, 100), adam)
    found_ = backward_of_frozen(base)
    assert found_ and (found_.change(base, "expected").name == "aten::convolution_backward").sum() == left + 1


@pytest.mark.parametrize(
    ("call", "share", "sized", "wide"),
    [
        ("aten::type_as", 1.0, False, True),
        ("aten::to", 0.0, True, True),
        ("aten::to", 0.0, False, False),
        ("aten::contiguous", 1.0, False, False),
    ],
)
def test_attention_in_32_bits_between_casts_runs_in_16_bits(call, share, sized, wide):
    cost = Cost(1 << 36, 1 << 27, 1 << 25, "attention", "fp32", work=Attention(2, 16, 16, 4096, 4096, 64, causal=True))
    halves = Cost(1 << 23, 1 << 25, 1 << 24, "copy", "bf16")
    cast = op("aten::copy_", halves if sized else None, call=call, ns=30_000.0)
    attends = [op(f"aten::_efficient_attention_{way}", cost if sized else None, ns=3e6, phase=way) for way in WAYS]
    base = run(linear(), cast, attends[0], cast, linear(), attends[1], op("aten::add_", ns=40_000.0))
    shares = np.array([share * ("attention" in name) for name in base.ops.name])
    base = replace(base, recorded=replace(base.recorded, wide_attention=shares))
    assert found("casts-back", base) == wide
    if wide:
        left = find("casts-back").transform(base, "expected")
        assert not (left.name == "aten::copy_").any() and "rotate" in find("casts-back").how_to(base)
        assert (left.kernel_ns[[1, 3]] < 0.2 * 3e6).all()


WAYS = ("forward", "backward")
SCORES = ("float", 64, 100_000)


@pytest.mark.parametrize(("after", "width", "rank"), [("eq", 1, True), ("index", 1, False), ("eq", 100_000, False)])
def test_a_sort_for_the_place_of_one_number_is_a_count(after, width, rank):
    sort = op("aten::sort", call="aten::argsort", ns=900_000.0) | given(SCORES)
    base = run(sort, op(f"aten::{after}", ns=90_000.0) | given(("long int", 64, 100_000), ("long int", 64, width)))
    assert found("costly-algorithm", base) == rank


@pytest.mark.parametrize(("rows", "costly"), [(100_000, True), (64, False)])
def test_least_squares_of_a_tall_matrix_are_normal_equations(rows, costly):
    solve = op("aten::linalg_lstsq", ns=900_000.0) | given(("float", rows, 8), ("float", rows, 1))
    assert found("costly-algorithm", run(linear(), solve)) == costly


def row(node: int, **more):
    names = ("aten::mul", "aten::mm")
    call = ENGINE + "MulBackward0"
    return [op(name, call=call, ns=2_000.0, phase="backward") | {"node": node} | more for name in names]


@pytest.mark.parametrize(
    ("node", "more", "rows"),
    [
        (lambda _: 7, {}, True),
        (lambda each: each, {}, False),  # a graph each
        (lambda _: 7, {"differentiable": True}, False),  # gradients of gradients
    ],
)
def test_rows_of_a_jacobian_are_one_backward_pass(node, more, rows):
    between = op("aten::fill_", ns=1_000.0)
    base = run(linear(phase="forward"), *[x for index in range(20) for x in (between, *row(node(index), **more))])
    assert found("gradients-one-by-one", base) == rows


def density(copied_us: float = 30, made_us: float = 2, call: str = "LinalgSolveTriangularBackward0"):
    """Return the gradient of a density whose covariance is checked and factorized, without an update."""
    checks = [op(f"aten::{name}", call="aten::isclose", ns=35_000.0) for name in ("eq", "sub", "le")]
    checks += [op("aten::_local_scalar_dense", call="aten::is_nonzero", ns=1_500.0, category="memcpy")]
    names = (("copy_", copied_us), ("linalg_cholesky_ex", 700), ("tril_", 34))
    factor = [op(f"aten::{name}", call="aten::linalg_cholesky", ns=1000.0 * us) for name, us in names]
    back = op("aten::linalg_solve_triangular", call=ENGINE + call, ns=450_000.0, phase="backward")
    return [*timed(("mul", made_us)), *checks, *factor, back]


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        (density(), True),
        ([row | given(("float", 512, 512)) for row in density()], True),
        (density(made_us=30), False),  # the matrix is made anew
        (density(call="LinalgCholeskyExBackward0"), False),  # and has a gradient
        ([*density(), op("aten::_fused_adam_", ns=2_000.0, phase="optimizer")], False),
    ],
)
def test_a_sampler_factorizes_and_checks_what_stays_for_each_gradient(rows, again):
    base = run(*rows * 8)
    assert found("computed-again", base) == again
    if again:
        left = find("computed-again").transform(base, "expected")
        assert (left.name == "aten::linalg_cholesky_ex").sum() == 1 and (left.call == "aten::isclose").sum() == 3
        assert "validate_args" not in find("avoid-syncs").how_to(base)


def test_waits_of_distributions_are_their_validation():
    valid = op("aten::all", call="aten::_is_all_true", ns=1_500.0)
    reads = op("aten::_local_scalar_dense", call="aten::is_nonzero", ns=1_500.0, category="memcpy")
    assert "validate_args=False" in find("avoid-syncs").how_to(run(*[linear(), valid, reads] * 8))


def message(gathered_us: float, *between, sums: str = "index_add"):
    """Return layers that send the outputs of a network on gathered rows along edges, with their gradients."""
    layers = [op(f"aten::{name}", call=f"aten::{call}", ns=900_000.0) for name, call in (("addmm", "linear"),) * 2]
    forward = [*timed(("native_layer_norm", 20), ("index_select", gathered_us)), *between, *layers]
    back = [("gather", 360), ("mm", 500), ("mm", 400), ("index_add_", 1000)]
    calls = [op(f"aten::{name}", call=ENGINE + "X", ns=1000.0 * us, phase="backward") for name, us in back]
    return run(*forward, *timed(("mul", 400), (sums, 1000)), *calls)


@pytest.mark.parametrize(
    ("base", "repeated"),
    [
        (message(360), True),
        (message(60), False),  # few rows come twice
        (message(360, *timed(("sub", 300))), False),  # of pairs of rows
        (message(360, sums="sum"), False),  # a batch of items
    ],
)
def test_a_network_on_gathered_rows_runs_once_for_each_node(base, repeated):
    assert found("computed-again", base) == repeated
    if repeated:
        left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
        assert left.tolist() == pytest.approx([1, 1, *[20 / 360] * 2, 1, 1, 1, *[20 / 360] * 2, 1])
