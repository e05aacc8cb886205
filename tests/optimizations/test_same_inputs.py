"""Work that a step repeats on equal inputs: entries of a sparse matrix are merged, and encoders run before dropout."""

import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import elementwise
from test_waste import op, run
from test_work_again import again, found, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost

ENTRIES, NODES = 6_000_000, 500_000
SORTS = op("aten::addmm", call="aten::_sparse_mm", ns=2_000_000.0)
NUMBERS = op("aten::arange", Cost(0, 0, 8 * ENTRIES, "copy", "fp32"), call="aten::_sparse_mm")
COLUMN = [
    op(f"aten::{name}", elementwise(ENTRIES, "fp32"), call="aten::_sparse_mm") for name in ("copy_", "div_", "add_")
]
MULTIPLIES = [op(f"aten::{name}", call="aten::_sparse_mm", ns=900_000.0) for name in ("copy_", "addmm")]
STATE = ("float", NODES, 32)


def products(times: int, *before, launches=32, between=()):
    """Return a run of products of a sparse matrix that is not coalesced, but for one with few launches."""
    product = [NUMBERS, SORTS, *COLUMN, *COLUMN, *MULTIPLIES, op("aten::mul_", ns=9_000.0) | given(STATE), *between]
    base = run(*before, *product * times)
    counts = np.where(base.ops.kernel_ns == SORTS["ns"], launches, 1)
    return replace(base, ops=base.ops.assign(launches=counts))


def test_a_sparse_matrix_that_stays_is_merged_once_and_one_that_a_step_makes_in_its_first_product():
    base = products(4)
    assert again(base) and ".coalesce()" in find("computed-again").how_to(base)
    left = find("computed-again").transform(base, "expected").name.tolist()
    assert left == ["aten::copy_", "aten::addmm", "aten::mul_"] * 4
    makes = op("aten::mul", ns=9_000.0) | given(("float", ENTRIES), ("float", ENTRIES))
    assert np.sum(find("computed-again").transform(products(4, makes), "expected").name == "aten::arange") == 1
    assert not again(products(1, makes)) and not again(products(4, launches=3))
    assert not again(products(4, between=[op("aten::bernoulli_", ns=9_000.0)]))


IMAGE, WIDE, FEATURES, MAP = (
    ("float", 16, *rest) for rest in ((3, 384, 384), (64, 192, 192), (64, 96, 96), (1, 90, 90))
)


def layer(name, source, target, weight=(), **more):
    """Return an op that reads one tensor, and perhaps a weight, and writes another."""
    read, written = (4 * int(np.prod(shape[1:])) for shape in (source, target))
    weighs = 4 * int(np.prod(weight)) if weight else 0
    cost = Cost(0, read + weighs, written, "convolution" if weight else "pointwise", "fp32", weight_bytes=weighs)
    tensors = (source, ("float", *weight)) if weight else (source,)
    return op(f"aten::{name}", cost, ns=90_000.0) | given(*tensors) | more


CONVOLVES = layer("cudnn_convolution", IMAGE, WIDE, (64, 3, 7, 7))
ENCODES = [layer("cudnn_convolution", WIDE, FEATURES, (64, 64, 3, 3)), layer("clamp_min_", FEATURES, FEATURES)] * 2
DRAWS = [op("aten::bernoulli_", call="aten::feature_dropout", ns=2_000.0) | given(("float", 16, 64, 1, 1))]
DROPS = [*DRAWS, layer("mul", FEATURES, FEATURES, call="aten::feature_dropout")]
DECODES = [layer("cudnn_convolution", FEATURES, MAP, (1, 64, 1, 1)), layer("sigmoid", MAP, MAP)]
JOINS = op("aten::cat", call="aten::stack", ns=9_000.0)


def drawn(first=CONVOLVES, rest=(*ENCODES, *DROPS, *DECODES), times=8):
    return run(*[first, *rest] * times, JOINS)


def test_an_encoder_before_dropout_runs_once_for_all_draws():
    base = drawn()
    left = find("computed-again").transform(base, "expected").name.tolist()
    names = base.ops.name.tolist()
    assert left[:9] == names[:9] and len(left) == 9 + 7 * 4 + 1
    assert "decoder(features)" in find("computed-again").how_to(base)
    small = [each | {"ns": 1_000.0} for each in (CONVOLVES, *ENCODES, *DROPS, *DECODES)]
    assert not found("one-call-per-item", drawn(small[0], small[1:]))


@pytest.mark.parametrize(
    "base",
    [
        drawn(CONVOLVES | {"takes": True}),  # parts of a batch
        drawn(CONVOLVES | {"selected": True}),
        drawn(rest=(*ENCODES, *DECODES)),  # items
        drawn(rest=(*DROPS, *ENCODES, layer("add", IMAGE, IMAGE))),  # each call changes what the next one reads
        drawn(times=3),
    ],
)
def test_calls_for_items_and_steps_are_no_draws(base):
    assert not again(base)
