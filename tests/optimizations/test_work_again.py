"""Work that is done again although its inputs stay, and what only looks like it."""

import json

import numpy as np
import op_lists
import pandas as pd
import pytest
from test_waste import ENGINE, linear, masked, op, run, trained

from tracekit.advise import Search, find
from tracekit.advise.waste.items import calls_for_items
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict.called import PARTS, viewed


def given(*tensors):
    shapes, kinds = [list(shape) for _, *shape in tensors], [kind for kind, *_ in tensors]
    return {"inputs": (json.dumps(shapes), json.dumps(kinds))}


def found(name, base):
    return find(name).objection(base) is None


WEIGHT, ACTIVATION = ("float", 512, 512), ("float", 64, 512)
SOLVED = [
    op("aten::tril", call="aten::tril", ns=3_000.0, phase="forward") | given(WEIGHT),
    op("aten::linalg_lu_factor_ex", call="aten::linalg_solve", ns=800_000.0, phase="forward") | given(WEIGHT, WEIGHT),
]
STEP = [op("aten::add", call="aten::add", ns=3_000.0, phase="forward") | given(ACTIVATION, ACTIVATION)]
BACKWARD = op("aten::tril", call=ENGINE + "TrilBackward0", ns=3_000.0, phase="backward") | given(WEIGHT)
ADDED = op("aten::add_", call=ENGINE + "TrilBackward0", ns=3_000.0, phase="backward") | given(WEIGHT, WEIGHT)


def solved(uses: int, added: int):
    return trained(*[*SOLVED, *STEP] * uses, *[BACKWARD] * uses, *[ADDED] * added)


def again(base):
    return found("computed-again", base)


def test_a_function_of_one_weight_is_told_from_those_of_several_by_the_gradients_that_are_added():
    assert again(solved(8, added=7))
    assert not again(solved(8, added=0)) and not again(solved(8, added=8))


def test_one_use_remains_with_what_follows_from_activations():
    base = solved(8, added=7)
    left = find("computed-again").transform(base, "expected")
    assert np.sum(left.call == "aten::linalg_solve") == np.sum(left.call == "aten::tril") == 1
    assert np.sum(left.call == "aten::add") == 8


def test_the_code_is_that_of_what_was_found():
    assert find("computed-again").how_to(solved(8, added=7)).startswith("with torch.nn.utils.parametrize.cached()")
    assert "lu_solve" in find("computed-again").how_to(run(*FACTORIZED * 4))


def test_gradients_of_several_passes_are_not_added_up_for_one_weight():
    solve = BACKWARD | {"call": ENGINE + "LinalgSolveExBackward0"}
    rounds = [*SOLVED, *STEP, solve, BACKWARD, ADDED, op("aten::_fused_adam_", ns=9_000.0, phase="optimizer")]
    assert not again(run(*rounds * 7, *SOLVED))


def test_factorizations_that_no_weight_of_a_round_reaches_are_computed_once_in_all_rounds():
    choleskys = op("aten::linalg_cholesky_ex", call="aten::linalg_cholesky_ex", ns=900_000.0, phase="forward") | given(
        WEIGHT
    )
    makes = op("aten::exp", call="aten::exp", ns=30_000.0, phase="forward") | given(WEIGHT)
    solve = op("aten::linalg_solve_triangular", call="aten::linalg_solve_triangular", ns=800_000.0, phase="forward")
    back = solve | {"call": ENGINE + "LinalgSolveTriangularBackward0", "phase": "backward"}
    rest = [solve | given(WEIGHT, ACTIVATION), *STEP, back | given(WEIGHT, ACTIVATION)]
    update = op("aten::_fused_adam_", ns=9_000.0, phase="optimizer")
    base = run(*[makes, choleskys, *rest, update] * 4)
    assert again(base)
    left = find("computed-again").transform(base, "expected")
    assert [int(np.sum(left.name == f"aten::{name}")) for name in ("exp", "linalg_cholesky_ex")] == [1, 1]
    assert np.sum(left.name == "aten::linalg_solve_triangular") == 8
    through = choleskys | {"call": ENGINE + "LinalgCholeskyExBackward0", "phase": "backward"}
    assert not again(run(*[makes, choleskys, *rest, through, update] * 4)), "of a weight that changes"
    drawn = op("aten::multinomial", call="aten::multinomial", ns=9_000.0, phase="forward")
    assert not again(run(*[drawn, makes, choleskys, *rest, update] * 4)), "of other rows in each round"
    of_weight = op("aten::mm", op_lists.product(512, 512, 64, "fp32"), call=back["call"], phase="backward")
    assert not again(run(*rest, *[of_weight] * 4, *[choleskys] * 4, update)), "of several layers that learn"


MATRIX, SIDE = ("double", 512, 512), ("double", 512, 8)
FACTORIZED = [
    op("aten::copy_", Cost(0, 8 << 18, 8 << 18, "copy", "fp64"), call="aten::linalg_solve") | given(MATRIX, MATRIX),
    op("aten::linalg_lu_factor_ex", call="aten::linalg_solve", ns=800_000.0) | given(MATRIX, MATRIX),
    op("aten::linalg_lu_solve", call="aten::linalg_solve", ns=80_000.0) | given(MATRIX, SIDE),
    op("aten::add", Cost(0, 8 << 12, 8 << 12, "pointwise", "fp64")) | given(SIDE, SIDE),
]


def test_a_matrix_that_no_step_changes_is_factorized_once_and_one_that_a_step_makes_each_time():
    base = run(*FACTORIZED * 4)
    assert again(base)
    left = find("computed-again").transform(base, "expected")
    assert left.name.tolist() == ["aten::linalg_lu_solve", "aten::add"] * 4
    makes = op("aten::add", Cost(0, 8 << 18, 8 << 18, "pointwise", "fp64")) | given(MATRIX, MATRIX)
    writes = op("aten::add_", Cost(0, 8 << 9, 8 << 9, "pointwise", "fp64")) | given(MATRIX, ("double", 512))
    unknown = op("triton_kernel", ns=9_000.0)
    assert not any(again(run(*[each, *FACTORIZED] * 4)) for each in (makes, writes, unknown))


def test_matrices_of_a_batch_are_factorized_once_each():
    batch = ("double", 16, 512, 512)
    makes = op("aten::sub", Cost(0, 16 << 21, 16 << 21, "pointwise", "fp64")) | given(batch, batch)
    assert not again(run(makes, *FACTORIZED[:3] * 16))
    unknown = [each | {"inputs": None, "cost": None, "ns": each["ns"] or 9_000.0} for each in FACTORIZED[:3]]
    assert again(run(linear(), *unknown * 16))
    assert not again(run(linear(), *[unknown[0] | {"selected": True}, *unknown[1:]] * 16))


SMALL, LARGE, VECTOR = 1 << 14, 1 << 24, ("float", 1 << 12)
MADE = [
    op("aten::mul", Cost(0, 4 * SMALL, 4 * LARGE, "pointwise", "fp32"), call="aten::outer") | given(VECTOR, VECTOR),
    op("aten::exp", Cost(0, 4 * LARGE, 4 * LARGE, "pointwise", "fp32")) | given(("float", 1 << 12, 1 << 12)),
]
MADE[0]["inputs"] = given(("float", 1 << 12, 1), VECTOR)["inputs"]
USED = op("aten::mm", op_lists.product(1 << 12, 8, 1 << 12, "fp32")) | given(
    ("float", 1 << 12, 1 << 12), ("float", 1 << 12, 8)
)
NEW = op("aten::mul", Cost(0, 4 << 12, 4 << 12, "pointwise", "fp32")) | given(VECTOR)


def test_a_large_tensor_is_made_once_unless_what_it_follows_from_is_written_in_between():
    base = run(*[*MADE, USED] * 4)
    assert again(base) and not again(run(*[*MADE, USED, NEW] * 4))
    lengths = [len(find("computed-again").transform(base, outcome)) for outcome in ("worst", "expected", "best")]
    assert lengths == [12 - 6, 12 - 6, 12 - 8]


def token(rows: int):
    return [*[linear(8)] * 6, linear(rows), linear(8), op("aten::argmax", ns=3_000.0)]


@pytest.mark.parametrize("rows", [4096, 8])
def test_many_rows_in_passes_that_choose_a_token_were_there_before(rows):
    assert again(run(*token(rows) * 8)) == (rows > 8)


def test_a_projection_of_what_was_there_before_goes_with_its_copy_and_its_bias_and_not_with_those_of_others():
    def called(name):
        return op(name, call="aten::linear", ns=3_000.0)

    own = [called("aten::copy_"), linear(4096) | {"call": "aten::linear"}, called("aten::add_")]
    others = [called("aten::copy_"), linear(8) | {"call": "aten::linear"}, called("aten::add_")]
    step = [*own, *others, *token(8)] * 8
    left = find("computed-again").transform(run(*step), "expected")
    first = len(own + others + token(8))
    assert len(left) == len(step) - 7 * len(own)
    assert left.index[:first].tolist() == list(range(first)), "the first token's"
    assert left.name[first : first + len(others)].tolist() == [each["name"] for each in others]


def unknown(ns: float):
    return op("aten::addmm", call="aten::linear", ns=ns)


def timed_token(*ns: float):
    return [*[unknown(6_000.0)] * 6, *map(unknown, ns), unknown(200_000.0), op("aten::argmax", ns=3_000.0)]


def test_without_shapes_long_products_are_of_many_rows_unless_they_make_logits_or_read_what_the_host_sends():
    assert again(run(*timed_token(300_000.0) * 8))
    assert not again(run(*timed_token(6_000.0) * 8))
    image = op("aten::copy_", ns=90_000.0, category="memcpy") | {"copies": "Memcpy HtoD", "copied": 1e6}
    assert not again(run(*[image, *timed_token(300_000.0)] * 8))


def test_tokens_that_are_chosen_before_any_layer_have_none_of_logits():
    choice = op("aten::multinomial", ns=3_000.0)
    assert not again(run(choice, choice, *[unknown(6_000.0)] * 4, choice, choice))


def test_a_prompt_is_no_work_again():
    assert not again(run(unknown(300_000.0), *timed_token(6_000.0) * 8))
    assert not again(run(linear(4096), *token(8) * 8))


def test_sparse_products_before_any_weight_are_the_same_in_each_step_unless_they_have_a_gradient():
    product = op("aten::addmm", call="aten::_sparse_mm", ns=900_000.0, phase="forward")
    backward = op("aten::mm", ns=9_000.0, call=ENGINE + "MmBackward0", phase="backward")
    sparse = op("aten::addmm", ns=900_000.0, call=ENGINE + "SparseAddmmBackward0", phase="backward")
    layer = linear(phase="forward")
    assert again(run(product, product, layer, backward))
    assert not again(run(product, layer, backward, sparse)) and not again(run(layer, product, backward))


LARGER = op("aten::upsample_bilinear2d", Cost(0, 1 << 24, 1 << 28, "reduction", "fp32"))


def classified(channels: int, side: int):
    work = op_lists.product(1 << 20, channels, 64 * side * side, "fp32")
    cost = Cost(work.flops, 1 << 28, channels << 22, "convolution", "fp32", work=work.work)
    return op("aten::cudnn_convolution", cost, call="aten::conv2d") | given(
        ("float", 1, 64, 1024, 1024), ("float", channels, 64, side, side)
    )


@pytest.mark.parametrize(("channels", "side"), [(4, 1), (4, 3), (64, 1)])
def test_an_enlargement_comes_after_a_convolution_of_one_pixel_that_makes_fewer_channels(channels, side):
    base = run(LARGER, classified(channels, side))
    assert found("enlarged-early", base) == ((channels, side) == (4, 1))
    if found("enlarged-early", base):
        left = find("enlarged-early").transform(base, "expected").kernel_ns / base.ops.kernel_ns
        assert left.tolist() == pytest.approx([4 / 64, 1 / 16])


def experts(tokens: int, called: int):
    """Return a layer of eight experts, of which each token chooses two of 4,096, with so many tokens for each."""
    choice = op("aten::topk", Cost(0, 4096 * 8 * 2, 4096 * 2 * 10, "reduction", "fp32")) | given(
        ("c10::BFloat16", 4096, 8)
    )
    expert = linear(tokens) | given(("float", tokens, 1024), ("float", 1024, 4096))
    return run(linear(4096), choice, *[expert] * called)


def test_experts_that_compute_all_tokens_are_told_from_those_that_compute_their_own():
    base = experts(4096, 8)
    assert found("dense-experts", base)
    assert not found("dense-experts", experts(1024, 8)) and not found("dense-experts", experts(4096, 1))
    left = find("dense-experts").transform(base, "best").kernel_ns[2:] / base.ops.kernel_ns[2:]
    assert 0.2 < left.mean() < 0.35


def test_factors_that_stay_are_tested_once():
    reads = op("aten::_local_scalar_dense", call="aten::linalg_solve", ns=1_500.0, category="memcpy")
    left = find("computed-again").transform(run(*[*FACTORIZED[:3], reads, FACTORIZED[3]] * 4), "expected")
    assert left.name.tolist() == ["aten::linalg_lu_solve", "aten::add"] * 4


def test_numbers_that_are_read_one_after_another_are_waits_and_no_loop():
    scores = [op("aten::_local_scalar_dense", call="aten::item", ns=1_500.0, category="memcpy")] * 100
    assert not found("loop-of-small-ops", run(linear(), *scores, op("aten::add", ns=1_500.0), *scores))


@pytest.mark.parametrize("ns", [9_000.0, 400_000.0])
def test_a_round_with_a_long_op_is_a_step_of_a_solver_and_no_loop_of_small_ops(ns):
    rounds = [op(f"aten::{name}", ns=1_500.0) for name in ("mul", "add", "clone")]
    solve = op("aten::linalg_lu_factor_ex", call="aten::linalg_solve", ns=ns)
    assert found("loop-of-small-ops", run(*[*rounds, solve] * 40)) == (ns < 100_000)


ROWS = 1 << 20
EACH_ROW = op("aten::native_layer_norm", Cost(0, 64 * ROWS * 4, 64 * ROWS * 4, "norm", "fp32")) | given(
    ("float", ROWS, 64)
)
MIXED = op("aten::softmax", Cost(0, 64 * ROWS * 4, 64 * ROWS * 4, "softmax", "fp32")) | given(("float", ROWS, 64))


def picked(rows: int):
    cost = Cost(0, 64 * rows * 4, 64 * rows * 4, "gather", "fp32")
    return op("aten::index_select", cost) | given(("float", ROWS, 64), ("long int", rows))


def test_rows_that_an_index_does_not_pick_are_unused_unless_they_are_mixed_before():
    assert found("unused-rows", run(EACH_ROW, EACH_ROW, picked(4096)))
    assert not found("unused-rows", run(EACH_ROW, picked(ROWS // 2)))
    assert not found("unused-rows", run(EACH_ROW, MIXED, picked(4096)))
    everywhere = op("aten::mm", ns=90_000.0) | given(("float", 32, 64), ("float", 64, ROWS))
    assert not found("unused-rows", run(EACH_ROW, everywhere, picked(4096)))
    copied = EACH_ROW | {"name": "aten::copy_", "call": "aten::to", "category": "memcpy"}
    assert not found("unused-rows", run(copied, picked(4096)))
    left = find("unused-rows").applied(run(EACH_ROW, EACH_ROW, picked(4096)), "expected").ops
    assert left.kernel_ns[:2].sum() < 0.1 * run(EACH_ROW, EACH_ROW).ops.kernel_ns.sum()


TABLE, LENGTHS = ("float", 1 << 20, 64), ("float", 1 << 20, 1)
NORMALIZED = [
    op("aten::linalg_vector_norm", Cost(0, 256 << 20, 4 << 20, "reduction", "fp32", row=64)) | given(TABLE),
    op("aten::div", Cost(0, 512 << 20, 256 << 20, "pointwise", "fp32")) | given(TABLE, LENGTHS),
    op("aten::copy_", Cost(0, 256 << 20, 256 << 20, "copy", "fp32"), category="memcpy", ns=300_000.0)
    | given(TABLE, TABLE)
    | {"copies": "Memcpy DtoD (Device -> Device)"},
    op("aten::gather", Cost(0, 1 << 20, 1 << 20, "gather", "fp32"), phase="forward") | given(TABLE),
]


def test_a_table_is_normalized_for_a_few_rows_unless_each_step_changes_all():
    sparse = op("aten::index_add_", ns=9_000.0, phase="optimizer") | given(TABLE)
    dense = op("aten::fill_", ns=90_000.0, phase="backward") | given(TABLE)
    backward = op("aten::mm", phase="backward", ns=9_000.0)
    assert found("unused-rows", run(*NORMALIZED, backward, sparse))
    assert not found("unused-rows", run(*NORMALIZED, dense, sparse))


def test_without_shapes_several_backward_passes_without_an_update_are_an_attack():
    passes = [linear(phase="forward"), *[op("aten::mm", call=ENGINE + "AddmmBackward0", phase="backward")] * 2]
    update = op("aten::_fused_adamw_", ns=9_000.0, phase="optimizer")
    assert found("unused-gradients", run(*passes * 3))
    assert not found("unused-gradients", run(*passes)) and not found("unused-gradients", run(*passes * 3, update))


TILE = [linear(8) | {"takes": True}, op("aten::relu", ns=2_000.0), linear(8), op("aten::sigmoid", ns=2_000.0)]
JOINED = op("aten::cat", ns=9_000.0)


def test_calls_that_each_take_a_part_and_are_joined_are_one():
    base = run(op("aten::div", ns=9_000.0), *TILE * 16, JOINED)
    assert found("one-call-per-item", base)
    assert len(find("one-call-per-item").transform(base, "expected")) == len(TILE) + 2


def test_rounds_around_a_loop_that_each_take_their_part_are_one():
    tick, result = [linear(8), *TILE[1:]], op("aten::mean", ns=3_000.0)
    candidates = [*TILE, *tick * 3, result] * 16
    assert len(find("one-call-per-item").transform(run(*candidates, JOINED), "expected")) == 4 * len(TILE) + 2
    assert not found("one-call-per-item", run(*[*tick * 4, result] * 16, JOINED))


def test_a_vector_of_weights_that_is_split_is_taken_in_parts():
    host = pd.DataFrame({"name": ["aten::split_with_sizes", "aten::mm", "aten::mm"], "start_ns": [5, 10, 30]})
    assert viewed(PARTS, host, np.array([1, 2]), np.array([20, 40]), 0).tolist() == [True, False]


@pytest.mark.parametrize(
    "rows",
    [
        [*TILE * 16, op("aten::mul", ns=9_000.0)],  # nothing joins them
        [*[linear(8), *TILE[1:]] * 16, JOINED],  # nothing takes a part, as in a rollout
        [*[TILE[0], op("aten::_thnn_fused_gru_cell", ns=3_000.0)] * 16, JOINED],
    ],
)
def test_steps_of_a_rollout_or_of_a_recurrent_network_are_no_items(rows):
    assert not found("one-call-per-item", run(*rows))


CROP = op("aten::upsample_bilinear2d", ns=3_000.0) | {"takes": True} | given(("float", 1, 3, 90, 90))
BLOCK = [linear(8, layer="Net_0.Linear_1"), op("aten::relu", ns=2_000.0, layer="Net_0.ReLU_1")]
GRADER = [linear(8, layer="Net_0.Linear_0") | given(("float", 8, 1024)), *BLOCK * 4, linear(8, layer="Net_0.Linear_2")]
GRADE = op("aten::softmax", ns=1_500.0)


def test_items_that_are_prepared_one_by_one_are_one_call():
    """Blocks repeat within a call, and one of the crops is not resized."""
    base = run(*[CROP, *GRADER, GRADE] * 8, *GRADER, GRADE, *[CROP, *GRADER, GRADE] * 3, JOINED)
    assert found("one-call-per-item", base)
    assert len(find("one-call-per-item").transform(base, "expected")) == 11 + len(GRADER) + 12 + 1


STATE = CROP | given(("float", 8, 4096))
GIVEN_BACK = [linear(8, layer="Net_0.Linear_0") | given(("float", 8, 4096)), *GRADER[1:]]


@pytest.mark.parametrize(
    "rows",
    [
        [*[CROP, *GRADER, GRADE] * 12, op("aten::mul", ns=9_000.0)],  # nothing joins them
        [*[*GRADER, GRADE] * 12, JOINED],  # nothing takes a part
        [*[CROP, *GIVEN_BACK, GRADE] * 12, JOINED],  # a call reads as much as the one before wrote
        [*[CROP, STATE, *GRADER, GRADE] * 12, JOINED],  # what prepares the next input does
        [*[CROP, op("aten::cat", ns=1_500.0), *GRADER, GRADE] * 12, JOINED],  # with a state that is joined to the part
        [*[CROP, *GRADER, op("aten::gru_cell", ns=9_000.0, layer="Net_0.GRUCell_0")] * 12, JOINED],
    ],
)
def test_calls_that_need_the_result_of_the_one_before_are_no_prepared_items(rows):
    assert not calls_for_items(run(*rows))


PICTURE = op("aten::copy_", call="aten::to", ns=3_000.0) | {"takes": True}
PREPARED, BUFFER = ("float", 1, 3, 64, 64), ("float", 4, 4, 5)


def filled(taken=("unsigned char", 1, 3, 64, 64), result=("float", 5), read=BUFFER, ends="aten::copy_"):
    """Return a run that writes the result of each of 16 calls to its part of a buffer."""
    call = [
        PICTURE | given(PREPARED, taken),
        op("aten::mul", ns=2_000.0),
        linear(8),
        op("aten::relu", ns=2_000.0),
        op("aten::copy_", call=ends, ns=1_000.0) | given(result, result),
    ]
    return run(op("aten::fill_", ns=900.0), *call * 16, op("aten::argmax", ns=9_000.0) | given(read))


def test_calls_whose_results_fill_a_buffer_are_one():
    assert found("one-call-per-item", filled())
    assert len(find("one-call-per-item").transform(filled(), "expected")) == 5 + 2


@pytest.mark.parametrize(
    "base",
    [
        filled(taken=("float", 1, 8, 5)),  # a step of a rollout reads what steps before it wrote
        filled(read=("float", 64, 5)),  # a cache, of which each layer writes a part
        filled(ends="aten::clone"),
    ],
)
def test_steps_and_layers_that_write_parts_are_no_items(base):
    assert not found("one-call-per-item", base)


IMAGE, WINDOW = ("float", 3, 64, 64), ("float", 16, 3, 64, 64)
SENT = op("aten::copy_", ns=6_000.0, category="memcpy") | {
    "copies": "Memcpy HtoD (Pinned -> Device)",
    "copied": 49_152.0,
}
STACKED = op("aten::cat", call="aten::stack", ns=9_000.0)
HEAD = op("aten::add", Cost(0, 16 * 2048, 16 * 2048, "pointwise", "fp32"))


def encoded(*before, window=WINDOW):
    return run(SENT | given(IMAGE), *before, linear(16 * 64) | given(window), *[linear(16 * 64)] * 8, HEAD, linear(16))


def test_a_window_of_which_one_item_is_new_is_encoded_once():
    assert again(encoded(STACKED))
    left = find("computed-again").transform(encoded(STACKED), "expected").kernel_ns
    assert left[2:-2].sum() < 0.3 * encoded(STACKED).ops.kernel_ns[2:-2].sum()
    assert left[-1] == encoded(STACKED).ops.kernel_ns[-1]


def test_augmented_copies_of_one_item_and_a_batch_that_the_host_sends_are_no_window():
    assert not again(encoded(op("aten::flip", ns=9_000.0), STACKED))
    assert not again(encoded(STACKED, window=("float", 1, 3, 64, 64)))


def test_without_shapes_autocast_casts_all_but_the_input_of_a_product():
    casts = [op("aten::copy_", call="aten::linear", ns=ns) for ns in (1_000.0, 60_000.0, 2_000.0)]
    product = op("aten::addmm", call="aten::linear", ns=30_000.0)
    base = run(*[*casts, product] * 4)
    assert found("weights-cast", base) and not found("weights-cast", run(*[casts[-1], product] * 4))
    worst, expected = (find("weights-cast").transform(base, each).kernel_ns for each in ("worst", "expected"))
    assert worst.tolist() == [2_000.0, 30_000.0] * 4 and expected.tolist() == [30_000.0] * 4


def test_an_update_by_an_old_optimizer_uses_gradients():
    passes = [linear(phase="forward"), op("aten::mm", call=ENGINE + "AddmmBackward0", phase="backward")]
    assert not found("unused-gradients", run(*passes * 3, op("aten::add_", call="Optimizer.step#SGD.step")))


@pytest.mark.parametrize(
    "inputs", [("[[0], 7, null]", "[1]"), ("{}", "[]"), ("[[[3, 4]], [5]]", '["TensorList"]'), ("x", "")]
)
def test_unusual_inputs_are_no_work_again(inputs):
    odd = [
        row | {"inputs": inputs} for row in (SENT, STACKED, EACH_ROW, picked(4096), LARGER, classified(4, 1), *SOLVED)
    ]
    base = run(*odd * 3)
    for name in ("computed-again", "unused-rows", "enlarged-early", "dense-experts", "one-hot-product"):
        found(name, base)


@pytest.mark.parametrize(("others", "first"), [(2_000.0, True), (150_000.0, False)])
def test_waste_that_is_most_of_the_gpus_work_comes_first_even_if_the_host_hides_it(others, first):
    short = [op("aten::softmax", ns=others), *[unknown(2_000.0)] * 30]
    base = run(*[*short, unknown(100_000.0), unknown(20_000.0), op("aten::topk", ns=3_000.0)] * 20)
    assert find("computed-again").expected_speedup(base) < 1.1
    assert (Search(base).plan()[0].id == "computed-again") == first


def test_waste_that_gains_now_comes_before_what_the_host_hides():
    passes = [op("aten::softmax", ns=2_000.0), *[unknown(2_000.0)] * 16, unknown(250_000.0), unknown(20_000.0)]
    search = Search(run(*[masked(8, 1, 1024, 1024)] * 4, *[*passes, op("aten::topk", ns=3_000.0)] * 20))
    assert search.is_hidden(find("padding")) and not search.is_hidden(find("computed-again"))
    assert [step.id for step in search.plan()][:2] == ["computed-again", "padding"]
