"""Functions of small matrices that a program calls for one after another, and loops that need each other's results."""

import numpy as np
import pandas as pd
import pytest
from test_waste import ENGINE, linear, op, run, trained
from test_work_again import given

from tracekit.advise import find
from tracekit.advise.waste.matrices import matrices_one_by_one
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict.called import emptied, unbound

ITEMS = 32
POINTS, MATRIX = ("float", 256, 3), ("float", 3, 3)
ONE_CALL = find("one-call-per-item")


def small(name, *tensors, writes=POINTS, call="", **more):
    """Return an op of a microsecond that is given these tensors and writes another."""
    size = 4 * int(np.prod(writes[1:]))
    cost = Cost(0, size, size, "pointwise", "fp32") if writes else None
    return op(f"aten::{name}", cost, call=call and f"aten::{call}", ns=1_000.0, **more) | given(*tensors)


def svd(matrix=MATRIX, ns=9_000.0):
    return op("aten::_linalg_svd", call="aten::linalg_svd", ns=ns) | given(matrix)


MOVED = [
    small("sub", POINTS),
    small("mm", POINTS, POINTS, writes=MATRIX),
    svd(),
    small("mm", MATRIX, MATRIX, writes=MATRIX),
    small("mm", POINTS, MATRIX),
]
STACKED = op("aten::cat", call="aten::stack", ns=2_000.0)


def each(pose, items=ITEMS, rows=ITEMS, behind=STACKED):
    """Return a step that moves poses one by one, over which it iterates as the rows of a tensor."""
    steps = pose * items
    return run(linear(), steps[0] | {"unbound": ((rows, 256, 3),)}, *steps[1:], behind, linear())


def found(base):
    return matrices_one_by_one(base) is not None


def test_rows_of_a_batch_whose_matrices_are_decomposed_one_by_one_are_one_call():
    base = each(MOVED)
    assert found(base)
    assert "torch.linalg takes a batch" in ONE_CALL.how_to(base)
    left = ONE_CALL.transform(base, "expected")
    assert left.name.tolist()[1:-2] == [step["name"] for step in MOVED]
    assert left.kernel_ns[3] == pytest.approx(9_000.0)


@pytest.mark.parametrize(
    "base",
    [
        each(MOVED, rows=3),  # one pose, moved again and again until it fits
        each(MOVED, behind=op("aten::mean", ns=2_000.0)),
        each([*MOVED, op("aten::_local_scalar_dense", call="aten::item", ns=2_000.0)]),  # Python decides by it
        each([svd(("float", 8, 3, 3)) if "svd" in step["name"] else step for step in MOVED]),  # batches already
        each([svd(ns=900_000.0) if "svd" in step["name"] else step for step in MOVED]),
        each(MOVED, items=3, rows=3),
    ],
    ids=["iterates", "not joined", "decided", "batched", "not small", "few"],
)
def test_iterates_batches_and_large_matrices_are_no_items(base):
    assert not found(base)


FIELD, TILE, NEAR, WEIGHTS = ("float", 4_096, 16), ("float", 128, 16), ("float", 64, 16), ("float", 64, 64)
GATHERED = op("aten::index", call="aten::index", ns=1_000.0) | given(FIELD)
PUT = small("_index_put_impl_", FIELD, TILE, writes=TILE, call="index_put_")
TILES = [
    GATHERED,
    small("mm", NEAR, NEAR, writes=WEIGHTS),
    op("aten::linalg_lu_factor_ex", call="aten::linalg_solve", ns=9_000.0) | given(WEIGHTS, WEIGHTS),
    GATHERED,
    small("mm", TILE, WEIGHTS, writes=TILE),
    PUT,
]
MADE = op("aten::mul", ns=2_000.0) | given(FIELD) | {"emptied": (FIELD[1:],)}


def of_tiles(tile, *before, items=ITEMS):
    return run(linear(), *before, *tile * items, op("aten::clamp_", ns=2_000.0) | given(FIELD))


def test_rounds_that_write_all_parts_of_what_began_empty_are_one_call():
    base = of_tiles(TILES, MADE)
    assert found(base)
    assert ONE_CALL.transform(base, "expected").name.tolist()[2:-1] == [step["name"] for step in TILES]
    by_slices = small("copy_", TILE, TILE, writes=TILE, call="copy_")
    assert found(of_tiles([*TILES[:-1], by_slices], MADE))


@pytest.mark.parametrize(
    "base",
    [
        of_tiles(TILES),  # a state in place
        of_tiles(TILES, MADE, op("aten::copy_", ns=2_000.0) | given(FIELD, FIELD)),  # a first guess
        of_tiles(TILES, MADE, items=2 * ITEMS),  # sweeps over all parts
        run(linear(), MADE, *TILES[1:], *TILES * (ITEMS - 1), linear()),  # the first one reads no other
        of_tiles([*TILES[:3], small("add_", FIELD, writes=FIELD), *TILES[3:]], MADE),  # what all read changes
        of_tiles([*TILES, PUT], MADE),  # one of two, as large as a state in place
        of_tiles([*TILES[:3], *TILES[4:]], MADE),  # reads a tile before it writes one, which the last one left
    ],
    ids=["in place", "filled", "sweeps", "recursion", "changed", "two", "carried"],
)
def test_parts_of_what_rounds_also_read_are_no_items(base):
    assert not found(base)


def test_what_a_program_makes_without_writing_it_is_known_by_its_recorded_sizes():
    names, values = ["aten::empty_like", "aten::empty_strided", "aten::sub"], ['["",""]', '["[24, 8]","[8, 1]"]', ""]
    host = pd.DataFrame({"name": names, "values": values, "start_ns": [5, 6, 10]})
    assert emptied(host, np.array([2]), np.array([20]), 0).tolist() == [((24, 8),)]
    assert emptied(host, np.array([2]), np.array([20]), 7).tolist() == [None]


STATE, SEEN = ("float", 6, 6), ("float", 256, 3)
FILTERED = [
    small("mm", STATE, STATE, writes=STATE),
    small("sub", SEEN, writes=SEEN),
    op("aten::linalg_cholesky_ex", call="aten::linalg_cholesky", ns=9_000.0) | given(STATE),
    small("mm", STATE, SEEN, writes=SEEN),
    small("sub", STATE, STATE, writes=STATE),
    small("add", SEEN, writes=SEEN),
]


def test_a_filter_reads_the_covariance_that_the_step_before_wrote():
    assert not found(each(FILTERED))
    assert found(each([step for step in FILTERED if step is not FILTERED[4]]))


PLACES, COVARIANCE, TERM = ("float", 128, 2), ("float", 128, 128), ("float",)
FITTED = [
    small("mul", PLACES, writes=PLACES, phase="forward"),
    small("mm", PLACES, PLACES, writes=COVARIANCE, phase="forward"),
    op("aten::linalg_cholesky_ex", call="aten::linalg_cholesky", ns=9_000.0, phase="forward") | given(COVARIANCE),
    small("log", COVARIANCE, writes=COVARIANCE, phase="forward"),
    small("sum", COVARIANCE, writes=TERM, phase="forward"),
]
BACK = [
    small("mul", COVARIANCE, phase="backward") | {"call": ENGINE + "LogBackward0"},
    small("mm", COVARIANCE, COVARIANCE, phase="backward") | {"call": ENGINE + "LinalgCholeskyExBackward0"},
    small("fill_", PLACES, phase="backward") | {"call": ENGINE + "SelectBackward0"},
]


def test_models_whose_terms_are_added_up_need_no_result_of_each_other_and_their_gradients_follow():
    base = trained(*FITTED * ITEMS, *BACK * ITEMS)
    assert found(base)
    left = ONE_CALL.transform(base, "expected")
    assert [int(np.sum(left.name == step["name"])) for step in FITTED[::2]] == [2, 1, 1]
    apart = trained(*[step | {"phase": ""} for step in FITTED] * ITEMS, *BACK * ITEMS)
    assert np.sum(ONE_CALL.transform(apart, "expected").name == "aten::mul") == 1 + ITEMS, "made without autograd"
    assert not found(trained(*FITTED * ITEMS, *BACK[:2] * ITEMS)), "of the same weights"


def test_a_tensor_that_the_program_iterates_over_is_taken_apart_before_the_next_call():
    names, values = ["aten::unbind", "aten::unbind", "aten::sub"], ['["","0"]', '["","1"]', ""]
    host = pd.DataFrame({"name": names, "values": values, "shapes": "[[8,4],[]]", "start_ns": [5, 6, 10]})
    assert unbound(host, np.array([2]), np.array([20]), 0).tolist() == [((8, 4),)]
    assert unbound(host, np.array([2]), np.array([20]), 7).tolist() == [None]
