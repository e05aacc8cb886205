"""Factorizations that nothing new reaches in a step, and those that only look like it."""

import op_lists
import pytest
from op_lists import elementwise
from test_waste import ENGINE, op, run, trained
from test_work_again import again, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost

N, YEARS = 512, 4096
PLACES, MATRIX, VECTOR, DRAWN = ("float", N, 2), ("float", N, N), ("float", N), ("float", YEARS, N)


def makes(name, numbers, *tensors, call="", phase=""):
    return op(f"aten::{name}", elementwise(numbers, "fp32"), call=call, phase=phase) | given(*tensors)


def correlation(phase=""):
    """Return the distances of places, by a call of several ops, and what follows from them."""
    sizes = makes("pow", 2 * N, PLACES, call="aten::cdist", phase=phase)
    distances = makes("mm", N * N, ("float", N, 4), ("float", 4, N), call="aten::cdist", phase=phase)
    return [sizes, makes("sum", N, PLACES, call="aten::cdist"), distances, makes("exp", N * N, MATRIX)]


EIGEN = op("aten::_linalg_eigh", call="aten::linalg_eigh", ns=9_000_000.0) | given(MATRIX)
ROOT = [makes("sqrt", N, VECTOR), makes("mul", N * N, MATRIX, VECTOR)]
DRAWS = op("aten::normal_", Cost(0, 0, 4 * YEARS * N, "copy", "fp32"), call="aten::randn") | given(DRAWN)
LOSSES = makes("mm", YEARS * N, DRAWN, MATRIX, call="aten::matmul")


def test_a_factorization_that_nothing_new_reaches_disappears_with_what_makes_its_matrix_and_reads_it_alone():
    base = run(DRAWS, *correlation(), EIGEN, *ROOT, LOSSES)
    assert again(base)
    assert find("computed-again").transform(base, "expected").name.tolist() == ["aten::normal_", "aten::mm"]


COVARIANCE = makes("mm", N * N, ("float", N, YEARS), DRAWN)
UPDATED = makes("add", N * N, MATRIX, MATRIX)
IN_PLACE = makes("mul_", N * N, MATRIX)


@pytest.mark.parametrize(
    "step",
    [
        [DRAWS, COVARIANCE, EIGEN, *ROOT, LOSSES],  # of the step's numbers
        [DRAWS, EIGEN, *ROOT, LOSSES, UPDATED],  # of a matrix that the step leaves to the next one
        [DRAWS, *correlation(), UPDATED, EIGEN, *ROOT, LOSSES],  # with another one of its size
        [DRAWS, IN_PLACE, EIGEN, *ROOT, LOSSES],  # of a matrix that decays
        [*correlation(), EIGEN, *ROOT],  # of a step that nothing new reaches at all
        [DRAWS, *correlation(), EIGEN],  # nothing of the step reads it
    ],
)
def test_a_factorization_of_what_may_change_or_of_nothing_but_what_stays_is_work(step):
    assert not again(run(*step))


def test_a_call_that_writes_new_numbers_into_a_part_of_its_result_makes_a_new_one():
    padded, wave = ("float", 64, 33_000), ("float", 64, 32_000)
    sent = op("aten::copy_", elementwise(64 * 32_000, "fp32"), category="memcpy") | given(wave, wave)
    fills = op("aten::fill_", Cost(0, 0, 4 * 64 * 33_000, "copy", "fp32"), call="aten::pad") | given(padded)
    copies = op("aten::copy_", elementwise(64 * 32_000, "fp32"), call="aten::pad") | given(wave, wave)
    filters = op("aten::cudnn_convolution", ns=4_000_000.0, call="aten::conv1d") | given(padded, ("float", 64, 1, 512))
    layer = op("aten::mm", ns=9_000.0, call=ENGINE + "MmBackward0", phase="backward")
    step = [each | {"phase": "forward"} for each in (sent | {"copies": "Memcpy HtoD"}, fills, copies, filters)]
    assert not again(trained(*step, layer))


SYSTEM, SIDE = ("float", N, N), ("float", N, 8)
SOLVES = [
    makes("copy_", N * N, SYSTEM, SYSTEM, call="aten::linalg_solve"),
    op("aten::linalg_lu_factor_ex", call="aten::linalg_solve", ns=8_000_000.0) | given(SYSTEM, SYSTEM),
    op("aten::linalg_lu_solve", call="aten::linalg_solve", ns=80_000.0) | given(SYSTEM, SIDE),
    makes("add", 8 * N, SIDE, SIDE),
]
GRADIENT = op("aten::mm", op_lists.product(64, 64, 64, "fp32"), call=ENGINE + "MmBackward0", phase="backward")
UPDATE = op("aten::_fused_adam_", ns=9_000.0, phase="optimizer")
LEARNS = [GRADIENT | given(("float", 64, 64)), UPDATE]


def left_of(*step):
    return find("computed-again").transform(run(*step), "expected").name.tolist().count("aten::linalg_lu_factor_ex")


def test_training_solves_with_one_factorization_of_a_matrix_that_no_step_changes_or_of_one_that_it_makes_once():
    assert left_of(*SOLVES * 6, *LEARNS) == 0
    assert left_of(UPDATED, *SOLVES * 6, *LEARNS) == 1
    assert left_of(*correlation(), UPDATED, *SOLVES * 6, *LEARNS) == 1, "that several ops make one of the other"
    assert left_of(UPDATED, SOLVES[-1], UPDATED, *SOLVES * 6, *LEARNS) == 2


def of_solver(name, numbers, *tensors):
    return makes(name, numbers, *tensors, call=ENGINE + "LinalgSolveExBackward0", phase="backward")


def test_a_gradient_of_right_sides_alone_does_not_go_through_the_matrix():
    right = [op("aten::linalg_lu_solve", ns=80_000.0) | {"call": of_solver("", 1)["call"], "phase": "backward"}]
    right = [each | given(SYSTEM, SIDE) for each in right] + [of_solver("copy_", 8 * N, SIDE, SIDE)]
    assert left_of(*SOLVES, *right, *LEARNS) == 0
    through = of_solver("mul", N * N, ("float", N, 1), ("float", 1, N))
    assert left_of(*SOLVES, *right, through, *LEARNS) == 1


STACK = op("aten::bmm", op_lists.product(N, N, 8, "fp32", batch=6, weights=False))
THROUGH = op("aten::mm", ns=9_000.0, call=ENGINE + "LinalgSolveExBackward0", phase="backward")
PRECONDITIONER = IN_PLACE | {"phase": "optimizer"}


@pytest.mark.parametrize(
    "step",
    [
        [UPDATED, *SOLVES] * 6 + LEARNS,  # of a matrix that each round makes
        [*SOLVES * 6, THROUGH, *LEARNS],  # of one that is trained
        [STACK | given(("float", 6, N, 8), ("float", 6, 8, N)), *SOLVES * 6, *LEARNS],  # of those of a batch in turn
        [*LEARNS, PRECONDITIONER, *[each | {"phase": "optimizer"} for each in SOLVES]],  # of an optimizer's statistics
    ],
)
def test_solves_of_other_matrices_are_work(step):
    assert not again(run(*step))


def test_of_the_inverse_of_a_matrix_that_stays_nothing_is_left():
    inverts = [each | {"call": "aten::linalg_inv"} for each in SOLVES[1:3]]
    step = run(*[*inverts, makes("mm", 8 * N, SYSTEM, SIDE)] * 2, *LEARNS)
    assert find("computed-again").transform(step, "expected").name.tolist()[:2] == ["aten::mm"] * 2


def test_a_distribution_that_is_made_in_each_step_of_training_factorizes_and_checks_what_stays():
    checks = [makes(name, N * N, MATRIX, MATRIX, call="aten::isclose") for name in ("sub", "abs", "le")]
    checks.append(op("aten::_local_scalar_dense", call="aten::is_nonzero", ns=1_500.0, category="memcpy"))
    factor = op("aten::linalg_cholesky_ex", call="aten::linalg_cholesky", ns=4_000_000.0) | given(MATRIX)
    lower = makes("tril_", N * N, MATRIX, call="aten::linalg_cholesky")
    solve = "aten::linalg_solve_triangular"
    solves = op(solve, call=solve, ns=90_000.0) | given(MATRIX, SIDE)
    back = solves | {"call": ENGINE + "LinalgSolveTriangularBackward0", "phase": "backward"}
    step = [*checks, factor, lower, solves, back, UPDATE]
    left = find("computed-again").transform(run(*step), "expected").name.tolist()
    assert left == [solve] * 2 + ["aten::_fused_adam_"]
    assert not again(run(UPDATED, *step)), "of a matrix that each step makes"
    of_matrix = makes("mm", N * N, SIDE, SIDE, call=back["call"], phase="backward")
    assert not again(run(*step[:-1], of_matrix, UPDATE)), "of a matrix that learns"


NODES, EDGES, WIDE = 100_000, 3_000_000, 64
NODE, EDGE, INTO = ("float", NODES, WIDE), ("float", EDGES, WIDE), ("long int", EDGES)
COMES = makes("index_select", EDGES * WIDE, NODE, INTO, phase="forward")
EMPTY = op("aten::fill_", Cost(0, 0, 4 * NODES * WIDE, "copy", "fp32"), call="aten::zeros_like") | given(NODE)
SUMS = makes("index_add_", EDGES * WIDE, NODE, INTO, EDGE, phase="forward")
READS = makes("addmm", NODES * 16, NODE, ("float", WIDE, 16), call="aten::linear", phase="forward")
TRAINS = [
    makes("mm", WIDE * 16, ("float", WIDE, NODES), phase="backward") | {"call": ENGINE + "AddmmBackward0"},
    UPDATE,
]


def test_features_that_edges_of_a_fixed_graph_sum_without_a_weight_are_the_same_in_each_step():
    base = run(*[COMES, EMPTY, SUMS] * 3, READS, *TRAINS)
    assert again(base)
    assert find("computed-again").transform(base, "expected").name.tolist() == [
        "aten::addmm",
        "aten::mm",
        UPDATE["name"],
    ]


CHOSEN = op("aten::random_", Cost(0, 0, 8 * EDGES, "copy", "fp32"), call="aten::randint") | given(INTO)
NOISY = makes("add", NODES * WIDE, NODE, NODE)
DIFFERENTIATED = makes("index_select", EDGES * WIDE, EDGE, INTO, call=ENGINE + "IndexAddBackward0", phase="backward")


@pytest.mark.parametrize(
    "step",
    [
        [CHOSEN, COMES, EMPTY, SUMS, READS],  # along edges that each step draws
        [
            DRAWS | given(NODE) | {"cost": Cost(0, 0, 4 * NODES * WIDE, "copy", "fp32")},
            NOISY,
            COMES,
            EMPTY,
            SUMS,
            READS,
        ],
        [COMES, SUMS, READS],  # into a state that the step leaves to the next one
        [COMES, EMPTY, SUMS, SUMS, READS],
        [COMES, EMPTY, SUMS, READS, DIFFERENTIATED],  # of features that are trained
    ],
)
def test_sums_along_edges_that_change_or_of_what_changes_are_work(step):
    assert not again(run(*step, *TRAINS))
