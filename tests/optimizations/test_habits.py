"""Ways of writing that PyTorch has a better one for, and what only looks like them."""

import math
from pathlib import Path

import numpy as np
import op_lists
import pytest
from msgspec.structs import replace
from op_lists import elementwise
from started import started
from test_waste import ENGINE, linear, op, run
from test_work_again import found, given

from tracekit.advise import Search, find
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import Outside
from tracekit.reports.words import sentences


def checked(call: str):
    names = ("aten::mm", "aten::ne", "aten::any", "aten::_local_scalar_dense")
    return [op(name, call=call, ns=2_000.0, phase="backward") for name in names]


def test_autograd_that_checks_each_gradient_is_told_from_a_check_of_all():
    base = run(linear(phase="forward"), *checked(ENGINE + "AddmmBackward0") * 12)
    assert found("checked-gradients", base)
    assert find("checked-gradients").transform(base, "expected").name.tolist() == ["aten::addmm"] + ["aten::mm"] * 12
    assert not found("checked-gradients", run(*checked(ENGINE + "AddmmBackward0")))
    assert not found("checked-gradients", run(*checked("aten::isnan") * 12))


def test_the_forward_pass_writes_down_no_stacks_without_the_checks():
    base = run(*[op("aten::relu", ns=2_000.0, phase="forward")] * 12, *checked(ENGINE + "ReluBackward0") * 12)
    forward = base.ops.phase == "forward"
    base = replace(base, ops=base.ops.assign(host_ns=np.where(forward, 150_000.0, 10_000.0)))
    left = find("checked-gradients").transform(base, "expected")
    assert left.host_ns[left.phase == "forward"].tolist() == [14_000.0] * 12


CELL = [linear(8, phase="forward")] + [op(f"aten::{name}", ns=2_000.0, phase="forward") for name in ("sigmoid", "tanh")]
CALLED = [linear(8, phase="forward"), op("aten::_thnn_fused_lstm_cell", ns=4_000.0, phase="forward")]
ONE_STEP = [op("aten::copy_", ns=2_000.0, phase="forward"), op("aten::_cudnn_rnn", ns=4_000.0, phase="forward")]
SEQUENCE = [ONE_STEP[0], op("aten::_cudnn_rnn", ns=400_000.0, phase="forward")]
CHOICE = op("aten::argmax", ns=3_000.0, phase="forward")


@pytest.mark.parametrize("step", [CELL, CALLED, ONE_STEP])
def test_cells_step_by_step_are_one_call_unless_a_step_chooses_the_next(step):
    assert found("cell-by-cell", run(*step * 28))
    assert not found("cell-by-cell", run(*step * 4)) and not found("cell-by-cell", run(*[*step, CHOICE] * 28))
    left = find("cell-by-cell").transform(run(*step * 28), "expected")
    assert len(left) == len(step)
    assert left.kernel_ns.sum() == pytest.approx(0.85 * run(*step * 28).ops.kernel_ns.sum())


def test_layers_of_recurrent_networks_have_each_a_sequence():
    assert not found("cell-by-cell", run(*SEQUENCE * 28))


def test_gradients_of_cells_are_in_one_call_too():
    backward = [op(f"aten::{name}_backward", ns=2_000.0, phase="backward") for name in ("tanh", "sigmoid")]
    base = run(*CELL * 28, *backward * 28)
    left = find("cell-by-cell").transform(base, "expected")
    assert np.sum(left.phase == "backward") == len(backward)


ROWS = [
    op("aten::_local_scalar_dense", call="aten::one_hot", ns=2_000.0),
    op("aten::scatter_", call="aten::one_hot", ns=90_000.0) | given(("long int", 512, 1000), ("long int", 512, 1)),
    op("aten::copy_", call="aten::to", ns=90_000.0),
]


def read(classes: int):
    return op("aten::mm", op_lists.product(512, 64, classes, "fp32"), ns=90_000.0)


def test_one_hot_rows_that_a_product_reads_are_an_index():
    base = run(linear(), *ROWS, read(1000))
    assert found("one-hot-product", base) and not found("one-hot-product", run(linear(), *ROWS, read(64)))
    assert find("one-hot-product").transform(base, "expected").name.tolist() == ["aten::addmm", "aten::mm"]


def joined(*sizes: int):
    return [op("aten::cat", Cost(0, size << 20, size << 20, "copy", "fp32")) for size in sizes]


def test_a_buffer_that_grows_is_copied_once():
    base = run(linear(), *joined(*range(1, 33)))
    assert found("grown-by-copying", base)
    left = find("grown-by-copying").transform(base, "expected").cost
    assert [cost.write_bytes for cost in left[1:]] == [32 << 20]
    assert not found("grown-by-copying", run(linear(), *joined(*[8] * 32)))


def test_a_buffer_grows_among_other_joins_of_parts_of_another_shape():
    skips = [shifted(3_000, 3_000) | {"takes": False}, shifted(900, 700) | {"takes": False}]
    tiles = [[*skips, shifted(512 * rows, 512)] for rows in (0, *range(1, 16))]
    base = run(linear(), *[each for tile in tiles for each in tile])
    left = find("grown-by-copying").transform(base, "expected")
    assert found("grown-by-copying", base) and len(base.ops) - len(left) == 15
    assert not found("grown-by-copying", run(linear(), *skips * 16))


def test_numbers_that_the_host_reads_one_after_another_are_one_wait():
    reads = [op("aten::_local_scalar_dense", call="aten::item", ns=1_500.0, category="memcpy")] * 100
    base = run(linear(), *reads)
    base = replace(base, ops=base.ops.assign(sync=base.ops.name == "aten::_local_scalar_dense"))
    assert not found("loop-of-small-ops", base) and find("avoid-syncs").objection(base) is None
    assert find("avoid-syncs").transform(base, "expected").sync.tolist() == [False] * 100 + [True]


def test_rounds_that_a_value_decides_are_no_loop_over_tensors():
    call = [op("aten::add", ns=1_500.0), op("aten::max", ns=1_500.0), op("aten::any", ns=1_500.0)]
    branch = op("aten::_local_scalar_dense", call="aten::is_nonzero", ns=1_500.0, category="memcpy")
    assert found("loop-of-small-ops", run(linear(), *call * 100))
    assert not found("loop-of-small-ops", run(linear(), *[*call, branch] * 100))


NUMBER = {"inputs": ("[[],[]]", '["float","Scalar"]')}
BRANCH = op("aten::_local_scalar_dense", call="aten::is_nonzero", ns=1_500.0, category="memcpy")
BRANCH |= {"inputs": ("[[]]", '["bool"]')}
PENALIZED = [
    [op("aten::lt", ns=1_000.0) | NUMBER | {"selected": True}, BRANCH, op(name, ns=1_000.0) | NUMBER]
    for name in ("aten::mul_", "aten::div_", "aten::div_")
]


def by_numbers(**changed):
    """Return a step that decides by one number of a tensor after another, with these facts of comparisons changed."""
    rounds = [[one | changed, *others] for one, *others in PENALIZED * 32]
    return run(linear(), *[each for one in rounds for each in one], linear())


def test_a_branch_on_one_number_of_a_tensor_after_another_is_a_loop_whose_waits_go_with_it():
    loops, base = find("loop-of-small-ops"), by_numbers()
    assert loops.objection(base) is None
    assert "torch.where" in loops.how_to(base) and "decides by it" in sentences(loops.reason(base))
    assert loops.transform(base, "expected").name.tolist() == [
        "aten::addmm",
        *[each["name"] for each in PENALIZED[0]],
        "aten::addmm",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"selected": False},  # an iteration on a number
        {"inputs": ("[[],[]]", '["float","float"]')},  # cells that are compared with each other
        {"inputs": ("[[64],[]]", '["float","Scalar"]')},  # a solver that works on tensors
    ],
    ids=["iterates", "cells", "tensors"],
)
def test_iterations_and_cells_that_need_each_other_are_no_loop_over_numbers(changed):
    assert not found("loop-of-small-ops", by_numbers(**changed))


@pytest.mark.parametrize("known", [True, False])
def test_a_mask_is_asked_for_one_number_after_another_by_recorded_shapes(known):
    asked = [BRANCH | {"selected": True}, *[op(name, ns=1_000.0) | NUMBER for name in ("aten::mul_", "aten::add_")]]
    rounds = [each | ({} if known else {"inputs": None}) for each in asked * 32]
    assert found("loop-of-small-ops", run(linear(), *rounds, linear())) == known


def test_python_between_the_rounds_of_a_loop_goes_with_them():
    base = run(linear(), *[op("aten::add", ns=1_500.0), op("aten::div", ns=1_500.0)] * 100)
    causes = np.array(["data-loading", "data-loading", "allocation"], dtype=object)
    work = Outside(causes, np.full(3, 5e6), np.array([0.5, 1.0, 0.5]))
    left = find("loop-of-small-ops").outside(replace(base, outside=work), "expected").ns
    assert left[0] < 0.1 * 5e6 and left[1:].tolist() == [5e6, 5e6]


def test_the_forward_pass_of_a_loop_is_the_same_loop():
    """The forward pass alone reads values; its backward pass sums a gradient in each round."""
    reads = [op("aten::_local_scalar_dense", ns=1_500.0, phase="forward", category="memcpy")] * 64
    sums = [op(name, ns=1_500.0, phase="backward") for name in ("aten::sum", "aten::add")] * 32
    base = run(linear(), *reads, linear(), *sums)
    layer = np.where(np.isin(base.ops.name, ["aten::addmm"]), "", "Regulator_0").astype(object)
    base = replace(base, ops=base.ops.assign(layer=layer))
    assert (find("loop-of-small-ops").transform(base, "expected").name == "aten::_local_scalar_dense").sum() == 2
    alone = replace(base, ops=base.ops.assign(layer=np.where(base.ops.phase == "forward", "", layer).astype(object)))
    assert (find("loop-of-small-ops").transform(alone, "expected").name == "aten::_local_scalar_dense").sum() == 64


@pytest.mark.parametrize("every", [1, 32])
def test_a_loop_that_reads_a_number_in_each_round_says_so(every):
    small = [op(name, ns=1_500.0) for name in ("aten::norm", "aten::mul")]
    read = op("aten::_local_scalar_dense", call="aten::item", category="memcpy", ns=1_500.0)
    loops, base = find("loop-of-small-ops"), run(linear(), *[*small * every, read] * (128 // every))
    said = ".item()" in sentences(loops.reason(base)), "get_total_norm" in loops.how_to(base)
    assert loops.obstacle(base) is None and said == (every == 1, every == 1)


@pytest.mark.parametrize(("layers", "first"), [(10, True), (300, False)])
def test_a_loop_comes_before_what_compiles_it_if_it_gains_alone(layers, first):
    """Compiled, a loop gains little more without its rounds: the best plan alone would lack the mistake."""
    small, large = elementwise(1 << 12, "fp32"), elementwise(1 << 16, "fp32")
    layer, loop = (
        [linear(64), op("aten::mul", large), op("aten::exp", large)],
        [op("aten::mul", small), op("aten::add", small)],
    )
    search = Search(run(*layer * layers, *loop * 40))
    steps, fix = search.plan(), find("loop-of-small-ops")
    assert search.gain((fix, *steps[1:]), steps[1:]).expected < search.gain((fix,)).expected
    assert (steps[0] is fix) == first


def test_gradients_that_are_copied_for_other_ranks_are_no_loop():
    copies = [op(name, ns=1_500.0) for name in ("aten::copy_", "aten::mul")] * 80
    alone = run(linear(), *copies)
    message = np.array([None] * (len(alone.ops) - 1) + [object()], dtype=object)
    assert found("loop-of-small-ops", alone)
    assert not found("loop-of-small-ops", replace(alone, ops=alone.ops.assign(message=message)))


TRACES = Path(__file__).parents[2] / "benchmarks" / "slow_scripts" / "traces"
OTHERS = sorted(TRACES.glob("s*.json.gz"))
NEW = ("computed-again", "unused-rows", "enlarged-early", "dense-experts", "checked-gradients", "cell-by-cell")
NEW += ("gradients-one-by-one",)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_scripts_that_waste_something_else_do_none_of_it(path):
    base = started(path)
    assert base is not None
    assert not [name for name in (*NEW, "one-hot-product", "grown-by-copying") if found(name, base)]


def test_an_inverse_and_a_determinant_are_one_factor_and_solvers_stay_in_32_bits():
    solves = op("aten::linalg_lu_factor_ex", call="aten::linalg_inv", ns=9e6, phase="forward")
    base = run(linear(), solves, solves | {"call": ENGINE + "LinalgSlogdetBackward0", "phase": "backward"})
    assert found("costly-algorithm", base) and "cholesky" in find("costly-algorithm").how_to(base)
    assert not found("costly-algorithm", run(linear(), solves | {"call": "aten::linalg_solve"}))
    names = replace(base.recorded, multiplies_in=np.array(["fp32"] * 3, dtype=object))
    assert names.products_in(base.ops).tolist() == ["", "", ""]
    assert names.products_in(run(*[op("aten::mm", ns=9e6)] * 3).ops).tolist() == ["fp32"] * 3


def test_unique_rows_are_one_number_each_and_unique_numbers_are_fine():
    sorts = op("aten::unique_dim", ns=9e6)
    assert found("costly-algorithm", run(linear(), sorts)) and not found(
        "costly-algorithm", run(linear(), sorts | {"call": "aten::_unique2"})
    )


def shifted(rows: int, part: int, **more):
    """Return a join of a buffer of so many rows, of which the program took a part, and of new rows."""
    lists = {"inputs": (f"[[[{rows},96],[{part},96]],[]]", '["TensorList","Scalar"]')}
    return op("aten::cat", op_lists.elementwise((rows + part) * 96, "fp32", "copy")) | lists | {"takes": True} | more


def test_a_buffer_that_is_copied_to_take_in_a_few_rows_is_a_ring():
    picks = op("aten::index", ns=9_000.0) | given(("float", 1_000_000, 96))
    base = run(linear(), *[shifted(1_000_000, 512)] * 4, picks)
    left = find("grown-by-copying").transform(base, "expected").kernel_ns
    assert left[1:5].sum() < 0.05 * base.ops.kernel_ns[1:5].sum()
    assert "memory[at : at + n] = new" in find("grown-by-copying").how_to(base)


@pytest.mark.parametrize(
    "rows",
    [
        [shifted(1_000_000, 512, takes=False)],  # no part of a buffer
        [shifted(1_000_000, 500_000)],
        [op("aten::add", ns=9_000.0) | given(("float", 1_000_000, 96)), shifted(1_000_000, 512)],  # made in the step
        [shifted(64, 1)],  # small
    ],
)
def test_other_joins_are_no_buffers(rows):
    assert not found("grown-by-copying", run(linear(), *rows * 4))


HISTORY, SLICE = ("float", 96, 3, 256, 256), ("float", 3, 256, 256)


def rolled(part=SLICE, *more):
    """Return a roll of a history, a copy of what is new to it, and a product that reads it."""
    moves = op("aten::roll", op_lists.elementwise(96 * 3 * 256 * 256, "fp32", "copy"), ns=900_000.0) | given(HISTORY)
    new = op("aten::copy_", op_lists.elementwise(math.prod(part[1:]), "fp32", "copy"), ns=2_000.0) | given(part, part)
    return [moves, new, op("aten::mm", op_lists.product(1, 3 * 256 * 256, 96, "fp32"), ns=90_000.0), *more]


@pytest.mark.parametrize("part", [SLICE, ("float", 1, 3, 256, 256), ("float", 4, 3, 256, 256)])
def test_a_history_that_is_rolled_to_take_in_new_rows_is_a_ring(part):
    base = run(linear(), *rolled(part) * 4)
    left = find("grown-by-copying").transform(base, "expected")
    assert left.kernel_ns[left.name == "aten::roll"].sum() < 0.1 * 4 * 900_000
    assert "memory[at : at + n] = new" in find("grown-by-copying").how_to(base)


def test_a_field_that_a_scheme_moves_is_written_anew_and_its_edge_copied():
    writes = op("aten::mul", op_lists.elementwise(96 * 3 * 256 * 256, "fp32"), ns=9_000.0) | given(HISTORY)
    assert not found("grown-by-copying", run(linear(), *rolled(SLICE, writes) * 4))
    assert not found("grown-by-copying", run(linear(), *rolled(("float", 48, 3, 256, 256)) * 4)), "half of it"


def test_a_buffer_that_grows_by_small_parts_is_not_shifted():
    base = run(linear(), *[shifted(512 * rows, 512) for rows in range(1000, 1016)])
    assert "parts.append" in find("grown-by-copying").how_to(base)
