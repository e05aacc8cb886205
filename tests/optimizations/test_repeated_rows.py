"""Work on rows that a copy wrote out of a view that repeats them, and what only looks like it."""

import json

import op_lists
import pytest
from op_lists import elementwise
from test_waste import ENGINE, op, run
from test_work_again import found, given

from tracekit.advise import find
from tracekit.advise.waste.views import _rows_of
from tracekit.analyzers.cost import Cost

ROW, ITEMS, WINDOW, STEP = 512, 120, 16, 2
WINDOWS = (ITEMS - WINDOW) // STEP + 1
ROWS = WINDOWS * WINDOW
TIMED = 400_000.0
"""Nanoseconds of an op."""


def copied(shape, strides):
    """Return a copy of a view."""
    numbers = op_lists.elementwise(ROWS * ROW, "fp32")
    copy = op("aten::copy_", Cost(0, numbers.read_bytes, numbers.write_bytes, "copy", "fp32"), ns=TIMED)
    kinds = given(("float", *shape), ("float", *shape))
    return copy | kinds | {"strides": (kinds["inputs"][0], json.dumps([list(strides)] * 2))}


OVERLAP = copied((WINDOWS, WINDOW, ROW), (STEP * ROW, ROW, 1))
EXPANDED = copied((WINDOWS, WINDOW, ROW), (ROW, 0, 1))
APART = copied((WINDOWS, WINDOW, ROW), (WINDOW * ROW, ROW, 1))


def layer(rows=ROWS, **more):
    cost = op_lists.product(rows, ROW, ROW, "fp32")
    return op("aten::mm", cost, call="aten::linear", ns=TIMED, **more) | given(
        ("float", rows, ROW), ("float", ROW, ROW)
    )


def adds(*tensors):
    return op("aten::add", elementwise(ROWS * ROW, "fp32"), ns=TIMED) | given(*tensors)


X = ("float", ROWS, ROW)
NORM = op("aten::native_layer_norm", op_lists.elementwise(ROWS * ROW, "fp32", family="norm"), ns=TIMED)
NORM |= given(X, ("float", ROW))
OVER_WINDOWS = op("aten::mean", Cost(0, 4 * ROWS * ROW, 4 * WINDOWS * ROW, "reduction", "fp32"), ns=TIMED)
OVER_WINDOWS |= given(("float", WINDOWS, WINDOW, ROW))
LATER = op("aten::gelu", elementwise(WINDOWS * ROW, "fp32"), ns=TIMED) | given(("float", WINDOWS, ROW))


@pytest.mark.parametrize(
    ("shape", "strides", "rows"),
    [
        ((29, 16, 3, 8, 8), (2 * 192, 192, 64, 8, 1), (464, 72)),  # windows of 16 of 72 items, two apart
        ((4, 29, 16, 8), (72 * 8, 16, 8, 1), (4 * 464, 4 * 72)),  # of each item of a batch
        ((100, 8, 64), (64, 0, 1), (800, 100)),  # an expanded dimension
        ((16, 98, 400), (16_000, 160, 1), (16 * 98 * 400, 16_000 * 15 + 98 * 160 + 240)),  # frames that share numbers
        ((29, 16, 8), (128, 8, 1), (0, 0)),  # windows side by side
        ((8, 64, 100), (6400, 1, 64), (0, 0)),  # another layout
    ],
)
def test_rows_of_a_view_and_those_that_differ(shape, strides, rows):
    assert _rows_of(shape, strides) == rows or rows == (0, 0) == _rows_of(shape, strides)


@pytest.mark.parametrize(("view", "part"), [(OVERLAP, ITEMS / ROWS), (EXPANDED, 1 / WINDOW)])
def test_work_on_each_row_is_as_much_as_rows_differ(view, part):
    base = run(view, layer(), NORM, adds(X, X), adds(X, ("float", ROW)), OVER_WINDOWS, LATER)
    assert found("computed-again", base)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([1, part, part, part, part, 1, 1])


def test_rows_that_a_view_does_not_repeat_or_that_nothing_multiplies_are_work():
    assert not found("computed-again", run(APART, layer(), NORM))
    assert not found("computed-again", run(OVERLAP, NORM, OVER_WINDOWS, layer(WINDOWS)))


DRAWN = op("aten::native_dropout", elementwise(ROWS * ROW, "fp32"), ns=TIMED) | given(X)
OF_PLACES = adds(("float", WINDOWS, WINDOW, ROW), ("float", WINDOW, ROW))


@pytest.mark.parametrize("differs", [DRAWN, OF_PLACES, adds(X, ("float", ROWS, 1))])
def test_rows_that_an_op_makes_differ_are_work(differs):
    assert not found("computed-again", run(OVERLAP, differs, layer(), NORM))


def test_a_tensor_of_the_same_size_from_before_is_not_of_the_rows():
    query = layer()
    assert not found("computed-again", run(query, EXPANDED, adds(X, X), layer()))


def test_gradients_of_repeated_rows_are_of_those_that_differ():
    gradients = [op("aten::mm", layer()["cost"], call=ENGINE + "MmBackward0", phase="backward", ns=TIMED)] * 2
    base = run(OVERLAP | {"phase": "forward"}, layer(phase="forward"), *gradients)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert left == pytest.approx([1, *[ITEMS / ROWS] * 3])


@pytest.mark.parametrize("strides", ["", "[]", "[3, 4]", '[[1, "x"], [8, 8, 8]]', "[[[1]], [[8], 8, 8]]"])
def test_strides_that_are_missing_or_none_say_nothing(strides):
    assert not found("computed-again", run(OVERLAP | {"strides": (OVERLAP["strides"][0], strides)}, layer(), NORM))


SCORES = op("aten::topk", Cost(0, 4 * WINDOWS * 8, 8 * WINDOWS, "reduction", "fp32"), ns=TIMED) | given(
    ("float", WINDOWS, 8)
)
ROUND = (layer(), NORM, OVER_WINDOWS, SCORES)
WRITES = op("aten::normal_", elementwise(ROWS * ROW, "fp32"), ns=TIMED) | given(("float", ROWS, ROW))


@pytest.mark.parametrize(
    ("between", "rounds"),
    [((), 2), ((LATER,), 2), ((WRITES,), 1)],
    ids=["at once", "after other ops", "rows that were written anew"],
)
def test_rows_that_stay_are_worked_on_once_in_all_rounds(between, rounds):
    base = run(EXPANDED, *ROUND, *between, *ROUND)
    after = find("computed-again").transform(base, "expected")
    assert len(base.ops) - len(after) == (2 if rounds == 2 else 0)
    worst = find("computed-again").transform(base, "worst")
    assert len(worst) == len(base.ops)
    assert (worst.kernel_ns < TIMED / 2).sum() == 2 * rounds


TOKENS, SAMPLES = 16, 8
TEXTS = 4 * SAMPLES
WIDE = TEXTS * TOKENS


def strided(made, *tensors):
    """Return the op with the shapes and strides of its tensors."""
    kinds = given(*(("float", *shape) for shape, _ in tensors))
    return made | kinds | {"strides": (kinds["inputs"][0], json.dumps([list(strides) for _, strides in tensors]))}


def moves(numbers):
    return Cost(0, 4 * numbers, 4 * numbers, "copy", "fp32")


PROMPTS = (4, SAMPLES, TOKENS)
REPEATED = strided(
    op("aten::copy_", moves(WIDE), call="aten::repeat_interleave", ns=TIMED),
    (PROMPTS, (SAMPLES * TOKENS, TOKENS, 1)),
    (PROMPTS, (TOKENS, 0, 1)),
)
IN_ORDER = (WIDE, ROW), (ROW, 1)
LOOKUP = strided(
    op("aten::gather", Cost(0, 0, 4 * WIDE * ROW, "gather", "fp32"), call="aten::embedding", ns=TIMED),
    ((1000, ROW), (ROW, 1)),
    ((WIDE, ROW), (1, 0)),
    IN_ORDER,
)
OF_TOKENS = strided(
    op("aten::mm", op_lists.product(WIDE, ROW, ROW, "fp32"), call="aten::linear", ns=TIMED),
    IN_ORDER,
    ((ROW, ROW), (1, ROW)),
)
KEYS = (TEXTS, TOKENS, ROW)
CACHED = strided(
    op("aten::copy_", moves(WIDE * ROW), ns=TIMED), (KEYS, (2 * TOKENS * ROW, ROW, 1)), (KEYS, (TOKENS * ROW, ROW, 1))
)
TOGETHER = strided(op("aten::add", elementwise(WIDE * ROW, "fp32"), ns=TIMED), IN_ORDER, IN_ORDER)


def test_a_model_of_repeated_prompts_reads_each_once_and_a_cache_still_has_all():
    base = run(REPEATED, LOOKUP, OF_TOKENS, CACHED)
    assert found("computed-again", base)
    left = find("computed-again").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    part = 1 / SAMPLES
    assert left[1:] == pytest.approx([part, part, (1 + part) / 2])


def test_tokens_beside_repeated_positions_are_of_no_repeated_rows():
    assert not found("computed-again", run(REPEATED, LOOKUP, LOOKUP, TOGETHER, OF_TOKENS))
    assert not found("computed-again", run(LOOKUP, REPEATED, LOOKUP, TOGETHER, OF_TOKENS))


def test_samples_drawn_from_repeated_rows_differ():
    drawn = op("aten::exponential_", elementwise(ROWS * ROW, "fp32"), ns=TIMED) | given(X)
    assert not found("computed-again", run(OVERLAP, drawn, layer(), NORM))
