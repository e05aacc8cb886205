"""Work on copies of one row, and Jacobians row by row, and what only looks like them."""

import json

import op_lists
import pandas as pd
import pytest
from op_lists import elementwise, product
from test_waste import ENGINE, linear, op, run
from test_work_again import again, found, given

from tracekit.advise import find
from tracekit.advise.waste.equal_rows import equal_rows
from tracekit.advise.waste.gradients import jacobian_across_a_batch, tall_jacobian
from tracekit.analyzers.predict.called import EXPANDED, viewed

DRAWN = [op("aten::copy_", call="aten::multinomial", ns=900_000.0), op("aten::multinomial", ns=5_000_000.0)]
COPIED = DRAWN[0] | {"expanded": True}


def test_draws_from_copies_of_one_row_are_one_draw():
    base = run(linear(), COPIED, *DRAWN[:1], DRAWN[1], linear())
    left = find("computed-again").transform(base, "expected").kernel_ns
    assert left[1:4].sum() == pytest.approx(0.3 * base.ops.kernel_ns[1:4].sum())
    assert find("computed-again").how_to(base).startswith("drawn = torch.multinomial(weights, rows * k")


@pytest.mark.parametrize(
    "rows",
    [
        DRAWN,  # rows of their own
        [DRAWN[1] | {"expanded": True}],  # nothing is written out
        [op("aten::copy_", call="aten::linear", ns=9e6) | {"expanded": True}, linear()],  # a cast of weights
        [COPIED | {"category": "memcpy"}, DRAWN[1]],
    ],
)
def test_other_views_and_copies_are_no_equal_rows(rows):
    assert not again(run(linear(), *rows, linear()))


@pytest.mark.parametrize(("read", "one"), [([0, 16, 1], True), ([256, 16, 1], False), (None, False)])
def test_a_solver_of_one_matrix_that_is_expanded_is_a_product(read, one):
    strides = {"strides": (None, json.dumps([[256, 1, 16], read, []]))} if read else {}
    copied = op("aten::copy_", call="aten::linalg_solve", ns=8e4) | {"expanded": True} | strides
    names = ("linalg_lu_factor_ex", "linalg_lu_solve", "_local_scalar_dense")
    call = [copied, *[op(f"aten::{name}", call="aten::linalg_solve", ns=3e5) for name in names]]
    base = run(linear(), *call, op("aten::add", ns=4_000.0), *call, linear())
    assert bool(equal_rows(base)) == one
    if one:
        left = find("computed-again").transform(base, "expected")
        assert left.name.tolist().count("aten::copy_") == 2 and len(left) == 5
        assert left.kernel_ns[1] == pytest.approx(0.02 * 9.8e5) and "inv(a)" in find("computed-again").how_to(base)


def test_an_expanded_view_is_that_of_the_next_call():
    host = pd.DataFrame({"name": ["aten::expand", "aten::multinomial", "aten::mm"], "start_ns": [5, 10, 30]})
    assert viewed(EXPANDED, host, pd.array([1, 2]).to_numpy(), pd.array([20, 40]).to_numpy(), 0).tolist() == [
        True,
        False,
    ]


def reverse(rows, columns, ends=None, made="aten::new_zeros"):
    """Return a run whose backward pass begins with the identity of so many rows."""
    square, node = ("float", rows, rows), op("aten::mul", elementwise(rows * rows, "fp32"), phase="backward")
    identity = [op("aten::fill_", call=made, ns=90_000.0) | given(square), op("aten::fill_") | given(("float", rows))]
    back = [node | {"call": ENGINE + "MulBackward0"} | given(square, ("float", rows))] * 20
    last = op("aten::add", call=ENGINE + "SliceBackward0", ns=2_000.0, phase="backward")
    return run(op("aten::exp", phase="forward"), *identity, *back, last | given(ends or ("float", rows, columns)))


def test_a_jacobian_of_many_rows_and_few_columns_is_for_forward_mode():
    base = reverse(4096, 7)
    assert found("costly-algorithm", base) and "jacfwd" in find("costly-algorithm").how_to(base)
    assert tall_jacobian(base).change(base, "expected").kernel_ns.sum() < base.busy_ns / 2


def across(points, product_rows, mixes=()):
    """Return a run whose backward pass goes through 64 points, or others, for each of 512 rows of a Jacobian."""
    size, call = 512, ENGINE + "TanhBackward0"
    identity = [op("aten::fill_", call="aten::new_zeros", ns=9e4) | given(("float", size, size))]
    identity.append(op("aten::fill_", ns=2_000.0) | given(("float", size)))
    product = op("aten::mm", op_lists.product(product_rows, 64, 64, "fp32"), ns=9e5, phase="backward")
    each = op("aten::tanh_backward", elementwise(64 * points, "fp32"), call=call, ns=2_000.0, phase="backward")
    joined = op("aten::cat", call=call, ns=9e5, phase="backward")
    return run(op("aten::exp", phase="forward"), *identity, product, *[each] * size, joined, product, *mixes)


def test_a_jacobian_across_a_batch_of_points_that_do_not_mix_is_one_for_each_point():
    base = across(64, 512 * 64)
    found_ = jacobian_across_a_batch(base)
    assert found_.times == 64 and "vmap" in find("costly-algorithm").how_to(base)
    after = found_.change(base, "expected")
    assert after.name[3:].tolist() == ["aten::mm", "aten::tanh_backward", "aten::cat", "aten::mm"]
    assert after.kernel_ns[1:].sum() == pytest.approx(base.ops.kernel_ns[1:].sum() / 64)


MIXED = op("aten::_softmax_backward_data", elementwise(512 * 64, "fp32", "softmax"), phase="backward")


@pytest.mark.parametrize("base", [across(1, 512), across(64, 512 * 64, [MIXED]), reverse(4096, 4096)])
def test_other_jacobians_are_no_blocks(base):
    assert jacobian_across_a_batch(base) is None


@pytest.mark.parametrize("base", [reverse(4096, 4096), reverse(64, 7), reverse(4096, 7, made="aten::empty")])
def test_other_backward_passes_are_no_tall_jacobian(base):
    assert tall_jacobian(base) is None


PAIRS, SIDE, WIDTH, HIDDEN = 512 * 512, 512, 384, 512


def joins(*strides):
    """Return a join of two views of the embeddings of items, for each pair of them."""
    lists = [[[SIDE, SIDE, WIDTH]] * 2, []], [list(map(list, strides)), []]
    inputs = (json.dumps(lists[0]), '["TensorList","Scalar"]')
    cost = elementwise(PAIRS * 2 * WIDTH, "fp32", "copy")
    return op("aten::cat", cost, ns=900_000.0) | {"inputs": inputs, "strides": (inputs[0], json.dumps(lists[1]))}


LEFT, RIGHT, APART = (WIDTH, 0, 1), (0, WIDTH, 1), (SIDE * WIDTH, WIDTH, 1)
READS_PAIRS = op("aten::addmm", product(PAIRS, HIDDEN, 2 * WIDTH, "fp32"), call="aten::linear", ns=2_000_000.0) | given(
    ("float", HIDDEN), ("float", PAIRS, 2 * WIDTH), ("float", 2 * WIDTH, HIDDEN)
)


def test_a_layer_of_all_pairs_runs_on_each_item_once():
    base = run(linear(), joins(LEFT, RIGHT), READS_PAIRS)
    left = find("computed-again").transform(base, "expected").kernel_ns
    assert left[1:].sum() < 0.15 * base.ops.kernel_ns[1:].sum() and "F.linear(x, w)" in find("computed-again").how_to(
        base
    )
    half = find("computed-again").transform(run(linear(), joins(LEFT, APART), READS_PAIRS), "expected").kernel_ns
    assert half[2] == pytest.approx(0.5 * 2_000_000.0, rel=0.01)
    assert not again(run(linear(), joins(APART, APART), READS_PAIRS))


def timed(name, call, ns, **more):
    return op(f"aten::{name}", call=call, ns=ns, **more)


def node(name, ns, of="mm"):
    return timed(of, f"{ENGINE}{name}Backward0", ns, phase="backward")


NORM = timed("native_layer_norm", "aten::layer_norm", 6_000.0, phase="forward")
CAT = timed("cat", "aten::cat", 2_700_000.0, phase="forward") | {"expanded": True}
CASTS, GEMM = (timed(name, "aten::linear", 1_000_000.0, phase="forward") for name in ("copy_", "addmm"))
RELU = timed("clamp_min", "aten::relu", 500_000.0, phase="forward")
BACK = [
    node("Relu", 700_000.0),
    node("Addmm", 900_000.0),
    node("Addmm", 900_000.0),
    node("ToCopy", 2_000_000.0, "copy_"),
]
SUMMED = [node("Expand", 300_000.0, "sum")] * 2


def test_without_shapes_autograd_tells_that_a_join_is_of_all_pairs():
    base = run(NORM, CAT, CASTS, GEMM, RELU, *BACK, *SUMMED)
    left = find("computed-again").transform(base, "expected").kernel_ns
    assert left[1] == 500_000.0 and left[2:4].sum() + left[6:9].sum() < 20_000.0
    assert left[4:6].tolist() == [500_000.0, 700_000.0] and left[9:].tolist() == [300_000.0] * 2


@pytest.mark.parametrize(
    "rows",
    [
        [NORM, CAT, GEMM, RELU, *BACK, *SUMMED[:1]],  # beside rows of their own
        [NORM | {"ns": 900_000.0}, CAT, GEMM, RELU, *BACK, *SUMMED],  # a token for all
        [NORM, CAT | {"expanded": False}, GEMM, RELU, *BACK, *SUMMED],
        [NORM, CAT, RELU, *BACK, *SUMMED],
    ],
)
def test_other_joins_of_views_are_no_pairs(rows):
    assert not again(run(*rows))


def test_layers_behind_a_join_of_repeated_rows_and_others_keep_theirs():
    behind = op("aten::mm", product(PAIRS, 64, HIDDEN, "fp32"), ns=500_000.0) | given(
        ("float", PAIRS, HIDDEN), ("float", HIDDEN, 64)
    )
    left = (
        find("computed-again").transform(run(linear(), joins(LEFT, APART), READS_PAIRS, behind), "expected").kernel_ns
    )
    assert left[3] == 500_000.0
